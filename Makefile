# Everything a fresh machine needs: git, make and Python 3.11 with pip.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STORE  ?= data/samples/twelve_weeks/history
LEDGER ?= $(wildcard $(dir $(STORE))owners.csv)
OUT    ?= weekly.html
SEED   ?= 1
NUMBER ?= 40
MINUTES ?= 60
CLIENT ?= all
VERSION ?= pinned
QUICK  := 'not slow and not spark and not lab and not fleet and not models and not delta and not instants'

.PHONY: gallery help report test slow instants check check-all contract fuzz mutants size bench lint docs site site-audit dist clean

help:
	@echo "make report     write $(OUT) from $(STORE) (STORE=… OUT=… to change)"
	@echo "make test       run every test that fits a few minutes"
	@echo "make instants   states at every instant of every sample, for an hour or two"
	@echo "make check      test, format, lint and types, and two minutes of make fuzz"
	@echo "make slow       what make test leaves out: browsers, notebooks, limits, every example"
	@echo "make check-all  everything, on JupyterLab, Spark, Dask, Ray, statsmodels and S3 too"
	@echo "make fuzz       mutated inputs through every reader and step (MINUTES=… SEED=…)"
	@echo "make contract   the real clients against a mock provider (CLIENT=… VERSION=pinned|newest)"
	@echo "make mutants    make small wrong changes and show which no test noticed (SEED=… NUMBER=…)"
	@echo "make size       lines, modules, walks and engine calls next to their budgets (WRITE=1)"
	@echo "make bench      print the benchmark table (N=… for another size), best on a quiet machine"
	@echo "make docs       write docs/ again from the code"
	@echo "make gallery    run the notebooks and write docs/gallery/ again, with their charts"
	@echo "make site       write the site into build/site, which needs no network to be read"
	@echo "make site-audit look over every page of it: links, axe-core, both themes, the search"
	@echo "make dist       write the sdist and the wheel into dist/, twice, and compare them"

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
	$(BIN)/stateanalytics report $(STORE) -o $(OUT) $(if $(LEDGER),--ledger $(LEDGER))

# Two workers on small frames: threads of polars would only wait for each other. Bytecode is
# kept, whatever the machine says: each worker, and each command it starts, would compile again.
test: $(VENV)/.developed
	PYTHONDONTWRITEBYTECODE= POLARS_MAX_THREADS=1 $(BIN)/pytest -q -n 2 --dist worksteal --hypothesis-profile=quick -m $(QUICK)

# Properties again, on half of their examples and with polars in as many threads as it likes.
slow: $(VENV)/.developed
	$(BIN)/pytest -q -n 2 --dist worksteal -m '(slow or hypothesis) and not lab and not spark and not fleet and not models and not delta and not instants'

# States at every instant of every sample against copies that end there: an hour or two.
instants: $(VENV)/.developed
	POLARS_MAX_THREADS=1 $(BIN)/pytest -q -n 2 --dist worksteal -m instants

lint: $(VENV)/.developed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/typos
	$(BIN)/zizmor --quiet --offline .github action.yml

check: lint test
	$(MAKE) fuzz MINUTES=2

check-all: lint
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev,lab,spark,fleet,models,buckets]'
	$(BIN)/pytest -q -n 2 --dist worksteal --hypothesis-profile=whole -m 'not instants'

# Answers are kept in .fuzz/: it goes on where it was stopped, with what was wrong first.
fuzz: $(VENV)/.developed
	$(BIN)/python -m tests.fuzz --seed $(SEED) --minutes $(MINUTES) --jobs 2

# Clients come from npm and PyPI; all else is on the loopback address. RECORD=tests/recorded
# writes the stores that tests/test_recorded_clients.py reads again.
contract: $(VENV)/.developed
	$(BIN)/python -m tests.contract --client $(CLIENT) --version $(VERSION) $(if $(RECORD),--record $(RECORD))

mutants: $(VENV)/.developed
	$(BIN)/python -m tests.mutants --seed $(SEED) --number $(NUMBER) --jobs 2

size: $(VENV)/.developed
	$(BIN)/python -m tests.size $(if $(WRITE),--write)

bench: $(VENV)/.developed
	$(BIN)/python -m benchmarks $(if $(N),-n $(N))

site: $(VENV)/.developed
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[site]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --config-file site/mkdocs.yml

# Links, axe-core on every page in both themes, and the search; needs Chromium.
site-audit: site
	$(BIN)/python -m tests.site_audit build/site

gallery: $(VENV)/.developed
	$(BIN)/python notebooks/make_gallery.py

docs: $(VENV)/.installed
	$(BIN)/python -m tests.commands_page
	$(BIN)/stateanalytics sql --schema --format markdown > docs/schema.md
	$(BIN)/python -c 'from stateanalytics.reporting.sections.appendix import as_markdown; print(as_markdown(), end="")' > docs/numbers.md
	$(BIN)/python -c 'from pathlib import Path; from tests.systems_page import with_coverage; page = Path("docs/systems.md"); page.write_text(with_coverage(page.read_text("utf-8")), "utf-8")'

# The moment of the last change and not of the build: the same sources give the same bytes.
dist: export SOURCE_DATE_EPOCH := $(shell git log -1 --format=%ct 2>/dev/null || echo 1577836800)
dist: $(VENV)/.developed
	rm -rf dist build/again
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --outdir build/again .
	diff -r dist build/again

clean:
	rm -rf $(VENV) .fuzz build dist weekly.html weekly.json
