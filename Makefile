# Every target sets itself up in .venv; nothing but Python (3.11 or newer) and make is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo demo-flower audit reproduce-quick reproduce test test-all style lint format docs docs-serve bench clean
.DEFAULT_GOAL := help

# $(call install,WHAT): install fedhlcr with its extras. Python may be set up to keep no compiled files of its own accord;
# without them commands, and the process that Flower starts for every message, take twice as long to start.
define install
@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e "$(1)"
@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib src >/dev/null || true
endef

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "fedhlcr needs Python 3.11 or newer: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "cannot make a virtual environment: install Python's venv module (Debian: python3-venv)"; exit 1; }
	@touch $@

$(VENV)/.core: $(VENV)/.created pyproject.toml
	@echo "Installing fedhlcr into $(VENV) ..."
	$(call install,.)
	@touch $@

$(VENV)/.dev: $(VENV)/.created pyproject.toml
	@echo "Installing fedhlcr and its development tools into $(VENV) ..."
	$(call install,.[dev])
	@touch $@ $(VENV)/.core $(VENV)/.flower $(VENV)/.experiments $(VENV)/.docs $(VENV)/.privacy

$(VENV)/.ruff: $(VENV)/.created pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $$($(BIN)/python .ci/pinned.py pyproject.toml ruff)
	@touch $@

$(VENV)/.experiments: $(VENV)/.created pyproject.toml
	@echo "Installing fedhlcr and what the experiments need into $(VENV) ..."
	$(call install,.[experiments])
	@touch $@ $(VENV)/.core

$(VENV)/.flower: $(VENV)/.created pyproject.toml
	@echo "Installing fedhlcr and Flower into $(VENV) ..."
	$(call install,.[flower])
	@touch $@ $(VENV)/.core

$(VENV)/.privacy: $(VENV)/.created pyproject.toml
	@echo "Installing fedhlcr and what its private modes need into $(VENV) ..."
	$(call install,.[privacy])
	@touch $@ $(VENV)/.core

$(VENV)/.docs: $(VENV)/.created pyproject.toml
	@echo "Installing fedhlcr and what builds its documentation into $(VENV) ..."
	$(call install,.[docs])
	@touch $@ $(VENV)/.core

demo: $(VENV)/.core ## Train the bundled flights as a federation of the airlines, and show what was found
	@$(BIN)/python -m fedhlcr.demo

demo-flower: $(VENV)/.flower ## The same over a network: a Flower SuperLink and three SuperNodes on this machine, with TLS
	@$(BIN)/python -m fedhlcr.engines.flower.demo

audit: $(VENV)/.privacy ## Attack three federations as a curious server would, and audit differential privacy
	@$(BIN)/fedhlcr audit --progress

reproduce-quick: $(VENV)/.experiments ## The paper's experiments and the rivals, in minutes: experiments/results/quick/RESULTS.md
	@$(BIN)/python -m experiments

reproduce: $(VENV)/.experiments ## The same in full, as in RESULTS.md: some two hours, resumable
	@$(BIN)/python -m experiments --full

test: $(VENV)/.dev ## Run the tests
	@$(BIN)/fedhlcr compile
	@# half of the tests each, not in turn: a worker has most fixtures and kernels of its half for itself
	$(BIN)/python -m pytest -n auto --dist worksteal

test-all: $(VENV)/.dev ## Run the tests and the long statistical checks
	$(BIN)/python -m pytest -n auto --dist loadgroup -m "slow or not slow"

style: $(VENV)/.ruff ## Check style alone: it takes seconds, and needs ruff only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint: style $(VENV)/.dev ## Check style and types
	$(BIN)/mypy

format: $(VENV)/.dev ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs ## Build the documentation, strictly: site/index.html
	@# not --quiet: it would not count warnings, and nothing would be strict
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/.docs ## Show the documentation, with its search, on this machine
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

bench: $(VENV)/.dev ## Measure speed, as ratios within one run, and write docs/explanation/performance.md
	$(BIN)/python -m benchmarks --json benchmarks/results.json
	$(BIN)/python -m benchmarks.performance

clean: ## Remove what the other targets made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist demo-flower demo-report.html site
