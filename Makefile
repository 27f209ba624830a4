# Needs Python 3.11 or later, make and a package index; everything else lands in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo test check bench fuzz docs clean

help:  ## list the commands
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(STAMP)  ## .venv with every extra and the development tools

$(STAMP): pyproject.toml uv.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet uv
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv sync --frozen --all-extras --inexact --quiet
	touch $@

demo: install  ## the life of an array of flights on Spark, and a picture of it in build/demo
	rm -rf build/demo
	$(BIN)/python -m terrazzo.cli.main demo build/demo

test: install  ## all tests
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

fuzz: install  ## 5,000 random histories beside libtiledb, and many times more damage and histories than `make test`
	TERRAZZO_CASES=5000 TERRAZZO_FUZZ=1 TERRAZZO_PROFILE=nightly LAW_SEEDS=200 \
	$(BIN)/python -m pytest -q -n 2 --dist worksteal --timeout 7200 tests/interop/differential tests/interop/test_mixed_law.py tests/property

check: install  ## ruff, mypy strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: install  ## the documents as pages, in build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: install  ## all benchmarks, as tables
	$(BIN)/python benchmarks/run.py

clean:  ## remove what was installed and built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
