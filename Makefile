# make demo    speak a dozen lines on the real model, from nothing
# make test    every check and test, from nothing
# make bench   the figures of this machine; make bench-peers compares with other engines
# make bench-quality  thirty lines against the original modules, by a judge: QUALITY_ARGS="--judge PATH/judge.py"
# make test-gpu bench-gpu  the same with a CUDA device
# Each does its own set-up: virtual environment, packages, native tools, weights. Second runs start in seconds.

VENV ?= .venv
PYTHON ?= $(firstword $(foreach p,python3 python3.11 python3.12 python3.13 python3.14 python,\
	$(shell command -v $(p) >/dev/null 2>&1 && $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
# The torch that is installed before everything else. Elsewhere than on the CPU build's index a plain name brings CUDA
# libraries (gigabytes); `make demo TORCH_ARGS="--index-url URL"` takes another index.
TORCH ?= torch==2.13.0
TORCH_ARGS ?=
OUT ?= demo-out
# More arguments: `make bench BENCH_ARGS="--quick --threads 2"`, `make bench-peers PEERS_ARGS="--judge PATH/judge.py"`.
BENCH_ARGS ?=
PEERS_ARGS ?=
QUALITY_ARGS ?=
PEERS_VENV ?= .venv-peers
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PEERS_PIP := $(PEERS_VENV)/bin/python -m pip --disable-pip-version-check

.PHONY: demo test test-exact lint weights native bench bench-peers bench-quality test-gpu bench-gpu gpu clean help

help:
	@sed -n 's/^# //p;/^$$/q' Makefile

demo: weights
	$(BIN)/gleeman demo --out $(OUT)

test: lint native weights
	$(BIN)/python -m pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --platform win32

# Minutes: the real model's batches against single rows, stage by stage.
test-exact: $(VENV)/.dev weights
	$(BIN)/python -m pytest -m exact

bench: weights
	$(BIN)/gleeman bench $(BENCH_ARGS)

# The peers live in an environment of their own, so that the product gains no package by them.
bench-peers: weights $(PEERS_VENV)/.peers
	$(PEERS_VENV)/bin/python -m benchmarks.peers $(PEERS_ARGS)

bench-quality: weights $(PEERS_VENV)/.peers
	$(PEERS_VENV)/bin/python -m benchmarks.quality $(QUALITY_ARGS)

$(PEERS_VENV)/.peers: benchmarks/peers/requirements.txt benchmarks/peers/requirements-no-deps.txt constraints.txt pyproject.toml
	test -x $(PEERS_VENV)/bin/python || $(PYTHON) -m venv $(PEERS_VENV)
	@echo "installing torch, ours and the peers' packages into $(PEERS_VENV) (minutes)"
	$(PEERS_PIP) install --quiet $(TORCH_ARGS) "$(TORCH)"
	$(PEERS_PIP) install --quiet --constraint constraints.txt --editable . -r benchmarks/peers/requirements.txt
	$(PEERS_PIP) install --quiet --no-deps -r benchmarks/peers/requirements-no-deps.txt
	@touch $@

test-gpu: gpu native weights
	$(BIN)/python -m pytest -m gpu

bench-gpu: gpu weights
	$(BIN)/gleeman bench --device cuda $(BENCH_ARGS)

gpu: $(VENV)/.dev
	@$(BIN)/python -c 'import sys, torch; sys.exit(None if torch.cuda.is_available() else "no GPU: torch %s finds no CUDA device on this machine, so nothing was run" % torch.__version__)'

weights: $(VENV)/.run
	$(BIN)/gleeman models fetch

# The C client and its tests need a C compiler: the machine's, else PyPI's ziglang in the virtual environment.
native: $(VENV)/.native

$(VENV)/.native: $(VENV)/.dev
	@command -v cc >/dev/null 2>&1 || $(PIP) install --quiet "ziglang>=0.15,<1"
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@

$(VENV)/.run: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "gleeman needs Python 3.11 or newer, found none: install it (Debian: apt-get install python3 python3-venv)" >&2; exit 1; }
	@$(PYTHON) -c "import venv, ensurepip" 2>/dev/null || { echo "$(PYTHON) has no venv module: install it (Debian: apt-get install python3-venv)" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing torch and the other packages (about 1.4 GB on disk; minutes the first time)"
	$(PIP) install --quiet $(TORCH_ARGS) "$(TORCH)"
	$(PIP) install --quiet --constraint constraints.txt --editable .
	@touch $@

clean:
	rm -rf $(VENV) $(PEERS_VENV) build dist $(OUT) daemon/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
