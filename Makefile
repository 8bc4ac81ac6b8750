# Everything a fresh machine needs: git, make and Python 3.11 with pip.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STORE  ?= data/samples/state.db
OUT    ?= weekly.html

.PHONY: help report test check check-all bench lint docs clean

help:
	@echo "make report     write $(OUT) from $(STORE) (STORE=… OUT=… to change)"
	@echo "make test       run every test that fits a coffee break"
	@echo "make check      test, format, lint and types"
	@echo "make check-all  the slow proofs too: millions of rows, JupyterLab, Spark"
	@echo "make bench      print the benchmark table"
	@echo "make docs       write docs/ again from the code"

# One stamp for users, one for developers: set-up runs again only when pyproject.toml changes.
$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("stateanalytics needs Python 3.11 or newer; type: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.developed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.installed

report: $(VENV)/.installed
	$(BIN)/stateanalytics report $(STORE) -o $(OUT)

test: $(VENV)/.developed
	$(BIN)/pytest -q -n 2 --dist loadfile -m 'not slow and not spark'

lint: $(VENV)/.developed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test

check-all: lint
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev,lab,spark]'
	$(BIN)/pytest -q -n 2 --dist loadfile

bench: $(VENV)/.developed
	$(BIN)/python -m benchmarks

docs: $(VENV)/.installed
	$(BIN)/stateanalytics schema --format markdown > docs/schema.md
	$(BIN)/python -c 'from stateanalytics.reporting.definitions import as_markdown; print(as_markdown(), end="")' > docs/numbers.md

clean:
	rm -rf $(VENV) weekly.html weekly.json
