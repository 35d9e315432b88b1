# Two commands do it all on a fresh machine with Python >= 3.11: `make run` and `make test`.
# Each target installs what it needs into .venv, once; the stamps .venv/*.done say what is there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SOURCES := pyproject.toml setup.py $(wildcard csrc/*.cpp csrc/*.hpp)

.PHONY: run test interop lint format gradcheck mutants kills bench clean
.NOTPARALLEL: # two pips must not write to one environment

run: $(VENV)/plot.done ## train a small GPT on the standard library's source text
	$(BIN)/entrenar train examples/quickstart.yaml

test: $(VENV)/test.done ## the suite; needs none of the peers
	$(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

# their tests skip where a peer is missing; here that is a failure
interop: $(VENV)/test.done $(VENV)/interop.done ## the peers as oracles
	$(BIN)/python -c 'import torch, jax'
	$(BIN)/python -m pytest -m interop $(PYTEST_ARGS)

lint: $(VENV)/test.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/test.done ## what lint would ask for
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .

gradcheck: $(VENV)/base.done ## every op, orders 1 and 2, by finite differences
	$(BIN)/python -m gradcheck --all $(GRADCHECK_ARGS)

mutants: $(VENV)/test.done ## the long run: planted faults, and sound ops over 1,000 seeds
	$(BIN)/python -m pytest -n 2 -m slow tests/mutants $(PYTEST_ARGS)

kills: $(VENV)/test.done ## a hundred trainings killed at random moments and resumed
	$(BIN)/python -m pytest -m slow tests/train $(PYTEST_ARGS)

bench: $(VENV)/bench.done ## against the peers, side by side: build/bench/bench.md and .json
	$(BIN)/python -m benchmarks --out build/bench $(BENCH_ARGS)

clean: # runs/ stays: it holds what was trained
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find entrenar -name '*.so' -delete

$(VENV)/python.done:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "entrenar needs Python >= 3.11, and $(PYTHON) is not one. Name another: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/base.done: $(VENV)/python.done $(SOURCES)
	$(PIP) --editable .
	@touch $@

# an extra on top of the base installation
$(VENV)/%.done: $(VENV)/base.done
	$(PIP) --editable '.[$*]'
	@touch $@

.SECONDARY:
