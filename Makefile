# make demo    speak a dozen lines on the real model, from nothing
# make test    every check and test, from nothing
# Each does its own set-up: virtual environment, packages, native tools, weights. Second runs start in seconds.

VENV ?= .venv
PYTHON ?= $(firstword $(foreach p,python3 python3.11 python3.12 python3.13 python3.14 python,\
	$(shell command -v $(p) >/dev/null 2>&1 && $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
# The torch that is installed before everything else. Elsewhere than on the CPU build's index a plain name brings CUDA
# libraries (gigabytes); `make demo TORCH_ARGS="--index-url URL"` takes another index.
TORCH ?= torch==2.13.0
TORCH_ARGS ?=
OUT ?= demo-out
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test lint weights native clean help

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
	rm -rf $(VENV) build dist $(OUT) daemon/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
