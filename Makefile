# Two commands on a bare machine with Python 3.11 and make: `make demo` and `make test`.
# Every target makes its own virtual environment first; nothing else is set up by hand.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint check bench slow clean help

help:
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/'

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet --editable . --group dev
	@touch $@

demo: $(VENV)/installed ## run the whole loop on the built-in four-site fleet; writes out/demo/report.html
	$(BIN)/tokenfleet demo --out out/demo

test: $(VENV)/installed ## the test suite without the slow set
	$(BIN)/pytest

lint: $(VENV)/installed ## format, lint, types and import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint ## everything that must be green before a commit lands, tests with branch coverage
	$(BIN)/pytest --cov --cov-report=term:skip-covered

bench: $(VENV)/installed ## re-run the benchmarks; writes benchmarks/results/latest.json
	$(BIN)/python -m benchmarks.run

slow: $(VENV)/installed ## the slow set: long soaks and real peers
	$(BIN)/pytest -m slow

clean: ## remove the environment and everything generated
	rm -rf $(VENV) out .coverage htmlcov .mypy_cache .ruff_cache .pytest_cache .hypothesis
