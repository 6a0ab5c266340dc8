# kbpf: `make` alone lists the targets.
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin

help: ## list the targets
	@grep -E '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | awk -F ':.*?## ' '{printf "  %-14s %s\n", $$1, $$2}'

setup: $(VENV)/.ready ## distribution packages (as root) and the virtual environment
$(VENV)/.ready: pyproject.toml
	test -x $(BIN)/python || python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

check: setup ## lint, format, types, layers
	$(BIN)/ruff check kbpf tests
	$(BIN)/ruff format --check kbpf tests
	$(BIN)/mypy

test-unit: setup ## no root, no network, seconds
	$(BIN)/pytest tests/unit tests/properties

.PHONY: help setup check test-unit
