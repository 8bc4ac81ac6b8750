"""Examples in docstrings read the shipped sample once, as the tests do."""

import pytest
from _pytest.doctest import DoctestItem

import stateanalytics as sa
from stateanalytics import snapshot
from tests import examples  # noqa: F401 - registers the profile that `make test` asks for


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave examples on the shipped sample to `make slow`: each computes what a test has asked."""
    if isinstance(item, DoctestItem) and "demo()" in item.dtest.docstring:
        item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def demo() -> sa.Snapshot:
    """The shipped sample, read once; whoever closes it opens one of their own."""
    return sa.demo()


@pytest.fixture(autouse=True)
def demo_of_examples(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give examples that call `demo` the sample that is open already."""
    item = request.node
    if not isinstance(item, DoctestItem) or "demo()" not in item.dtest.docstring:
        return
    snap = request.getfixturevalue("demo")
    for place in (sa, snapshot):
        monkeypatch.setattr(place, "demo", lambda: snap)
    if item.name != "stateanalytics.snapshot.demo" and "demo" in item.dtest.globs:
        item.dtest.globs["demo"] = sa.demo
