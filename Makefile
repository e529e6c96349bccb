# duly's commands. They need Python 3.11 or newer, pip and make; the rest goes into .venv.

.DEFAULT_GOAL := help
SHELL := /bin/sh

# The first of these that is new enough; `make PYTHON=... test` picks another.
OLDEST := 3.11
NEW_ENOUGH := import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))
ifndef PYTHON
PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	"$$p" -c "$(NEW_ENOUGH)" >/dev/null 2>&1 && { command -v "$$p"; break; }; done)
endif

VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 3
PYTEST := $(BIN)/python -m pytest
PYTEST_ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.PHONY: help demo test deep oracle chaos lint format types unit requirements bench clean

help:  ## show this list
	@sed -n 's/^\([a-z]*\):.*## /\1: /p' $(MAKEFILE_LIST) | awk -F': ' '{printf "make %-13s%s\n", $$1, $$2}'

demo: $(VENV)/.demo  ## watch a worker handle a lively mix of jobs, in half a minute
	@$(BIN)/python -m duly.demo

test: lint types unit  ## lint, types, and the tests on SQLite and PostgreSQL

lint: $(VENV)/.dev  ## style, layers, requirement ids
	@echo "== lint"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@$(BIN)/python tools/requirements.py --check

format: $(VENV)/.dev  ## let ruff fix what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(VENV)/.dev  ## mypy, strict
	@echo "== types"
	@$(BIN)/mypy

unit: $(VENV)/.dev  ## only the tests (PYTEST_ARGS="..." narrows them)
	@echo "== tests"
	@$(PYTEST) -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

deep: $(VENV)/.dev  ## the suites that take long
	@echo "== deep tests"
	@found=0; $(PYTEST) -m deep --collect-only -q >/dev/null 2>&1 || found=$$?; \
	if [ $$found -eq 5 ]; then echo "There is no deep test yet."; \
	else $(PYTEST) -m deep -n $(WORKERS) --dist worksteal --timeout 1200 $(PYTEST_ARGS); fi

oracle: $(VENV)/.dev  ## judge schedules on ten years, minute by minute, in seven zones (some minutes)
	@$(BIN)/python -m tests.schedule.oracle

chaos: $(VENV)/.dev  ## kill, pause, cut off, restart and starve real processes at length (CHAOS="kills --short" narrows it)
	@PYTHONPATH=src $(BIN)/python -m chaos $(CHAOS)

requirements: $(VENV)/.dev  ## every requirement with the tests that prove it
	@$(BIN)/python tools/requirements.py

bench: $(VENV)/.dev  ## measure duly beside its peers, two hours, and write the pages (BENCH="--only latency" narrows it)
	@if [ -n "$(BENCH)" ]; then $(BIN)/python benchmarks/run.py $(BENCH); else \
		$(BIN)/python benchmarks/run.py --json docs/benchmarks.json --markdown docs/benchmarks.md --plots docs/plots && \
		$(BIN)/python benchmarks/recurring.py --markdown docs/benchmarks-recurring.md && \
		$(BIN)/python benchmarks/limits.py --markdown docs/benchmarks-limits.md && \
		$(BIN)/python benchmarks/profiles.py --markdown docs/profiles.md; fi

clean:  ## remove the virtual environment, caches and builds
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp says that .venv holds what pyproject.toml asked for when it was last changed.

$(VENV)/.python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "duly needs Python $(OLDEST) or newer, with its venv module; none was found on PATH." >&2; \
		echo "Install one, or name it: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; exit 1; fi
	@"$(PYTHON)" -c "$(NEW_ENOUGH)" || { \
		echo "duly needs Python $(OLDEST) or newer, with its venv module: $(PYTHON) is $$("$(PYTHON)" --version 2>&1)." >&2; \
		exit 1; }
	@echo "Making $(VENV) with $$("$(PYTHON)" --version) ..."
	@"$(PYTHON)" -m venv $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.python pyproject.toml
	@echo "Installing duly ..."
	@$(BIN)/python -m pip install -qq --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.python pyproject.toml
	@echo "Installing duly and its development tools (a minute or two the first time) ..."
	@$(BIN)/python -m pip install -qq --editable '.[dev]'
	@touch $@ $(VENV)/.demo
