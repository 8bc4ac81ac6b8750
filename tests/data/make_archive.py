"""Write a tiny archive as this schema version writes it, to be read for ever.

    python -m tests.data.make_archive

Once for each `SCHEMA_VERSION`, into ``tests/data/archives/schema_<version>``: the one of an
older version is never written again.
"""

import json
import os
import tempfile
from pathlib import Path

import stateanalytics as sa
from stateanalytics.io.archive.manifests import SCHEMA_VERSION
from tests.conftest import EXTRACTS
from tests.test_observations import store_at

ARCHIVES = EXTRACTS / "archives"


def main() -> None:
    folder = ARCHIVES / f"schema_{SCHEMA_VERSION}"
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        for day in (1, 2):
            Path("state.db").unlink(missing_ok=True)
            with sa.read(store_at(Path("state.db"), day)) as snap:
                snap.archive(folder)
    for path in (folder / "manifests").iterdir():
        told = json.loads(path.read_text()) | {"place": "/srv/fleet/state.db"}
        path.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
