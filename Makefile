# `make demo` and `make test` each start from a bare checkout: Python >= 3.11, make and a package index.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
export MPLBACKEND := Agg

.PHONY: demo test test-slow lint docs bench soak audit clean

demo: $(VENV)/.serve
	$(BIN)/whatelse demo

TEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test: $(VENV)/.dev
	$(TEST) -m "not slow"

test-slow: $(VENV)/.dev
	$(TEST) -m slow

lint: $(VENV)/.dev
	$(BIN)/ruff check src tests benchmarks scripts docs/conf.py
	$(BIN)/ruff format --check src tests benchmarks scripts docs/conf.py
	$(BIN)/mypy

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

soak: $(VENV)/.dev
	$(BIN)/python -m benchmarks.soak --minutes $(or $(MINUTES),5)

audit: $(VENV)/.dev
	$(BIN)/python scripts/lock.py --check
	$(PIP) pip-audit
	$(BIN)/python -m pip_audit --require-hashes --requirement requirements-serve.txt

clean:
	rm -rf $(VENV) docs/_build .mypy_cache .ruff_cache .pytest_cache

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "whatelse needs Python 3.11 or newer; try: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

# One stamp per set of extras, renewed when what they install from changes.
$(VENV)/.serve: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[serve]'
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[serve,nvil,spark,dev,docs]'
	touch $@

$(VENV)/.docs: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[serve,docs]'
	touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) --editable '.[serve,nvil,spark,dev,docs,bench]'
	touch $@
