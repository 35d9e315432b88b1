# Two commands do it all on a fresh machine with Python >= 3.11: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SOURCES := pyproject.toml setup.py $(wildcard csrc/*.cpp)

.PHONY: run test interop lint gradcheck mutants bench clean

run: $(VENV)/plot.done  ## train a small GPT on the standard library's source text
	$(BIN)/entrenar train examples/quickstart.yaml

test: $(VENV)/test.done  ## the suite; needs nothing heavy
	$(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

interop: $(VENV)/test.done $(VENV)/interop.done  ## the peers as oracles
	$(BIN)/python -m pytest -m interop tests/interop $(PYTEST_ARGS)

lint: $(VENV)/test.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

gradcheck: $(VENV)/base.done  ## every op, orders 1 and 2, by finite differences
	$(BIN)/python -m gradcheck --all

mutants: $(VENV)/test.done  ## the long run: planted faults, and sound ops over 1,000 seeds
	$(BIN)/python -m pytest -m slow tests/mutants $(PYTEST_ARGS)

bench: $(VENV)/bench.done  ## against the peers, side by side
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache runs

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(f"entrenar needs Python >= 3.11, {sys.executable} is {sys.version.split()[0]}: make PYTHON=/path/to/python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/base.done: $(BIN)/python $(SOURCES)
	$(PIP) --editable .
	@touch $@

# an extra on top of the base installation
$(VENV)/%.done: $(VENV)/base.done
	$(PIP) --editable '.[$*]'
	@touch $@

.SECONDARY:
