# make demo        the whole main job on an embedded corpus, in a fresh environment
# make test        ruff and the tests that need no more than a few seconds each
# make test-slow   trainings, kills and resumes, whole exports
# make test-benchmarks  the measurements of benchmarks/, in their shortest form
# make test-broad  every case of what other tests show in one (long)
# make test-peers  the comparisons with transformers, torch and KerasHub, and the tests
#                  that need the messages of TensorFlow Serving, or the runtimes that
#                  models are exported for
# make test-backends  what Keras computes on JAX and PyTorch, and training on JAX
# make test-plan   compiles training steps for TPUs and GPUs, with their compilers in an
#                  environment of its own
# make test-beam   the Apache Beam pipelines, also on a Dask cluster: those of the data
#                  in an environment without TensorFlow, those of answers in another
# make test-all    all of these but the broad ones, and the demo and the documentation
#                  with few steps
# make docs        the documentation as a site, docs/_build/html: executes its pages and
#                  notebooks, checks its links, looks at it in a browser if there is one
# make notebooks   the same, and keeps the outputs of the notebooks in their files
# make linkcheck   asks for every address on the web that the documentation names
# make lint | format | lock | clean

VENV ?= .venv
# The first interpreter that starts and is new enough; `make PYTHON=... demo` to choose.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
  $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
    2>/dev/null && echo $$p && break; done)
# Processes that share the tests. One TensorFlow takes about 1.5 GB.
JOBS ?= 2
PYTEST_FLAGS ?=
SERVING_EXTRAS := serving,litert,onnx,openvino
# They run once with each other backend of Keras; small programs, quickly compiled.
BACKEND_TESTS = tests/backends tests/layers/float16_test.py \
  tests/models/backbone_test.py::test_dropout_is_on_only_in_training \
  tests/models/classifiers_test.py::test_fit_learns_which_token_comes_first
# JAX's programs, compiled in half the time.
QUICK_JAX := JAX_DISABLE_MOST_OPTIMIZATIONS=1 \
  XLA_FLAGS=--xla_cpu_use_fusion_emitters=false
# Training on JAX, whatever the backend of Keras is.
ENGINE_TESTS = tests/training/jax tests/layers tests/benchmarks
# All of them, unless runtimes are asked elsewhere.
PEER_TESTS =
# $(call pytest,environment,name,marks): a worker for each of JOBS, a file at a time.
# The seconds of every test are kept in .build/seconds/NAME.xml. A worker that dies ends
# the run, which would otherwise wait for ever for the other tests of its file.
pytest = $(1)/bin/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder \
  --max-worker-restart=0 \
  --junitxml=.build/seconds/$(2).xml --durations=10 -m "$(3)" $(PYTEST_FLAGS)
DEMO_FLAGS ?=
# Rows of the tables that the pages use.
DOCS_ROWS ?=
# A warning is an error; all of them are shown.
SPHINX_FLAGS ?= --fail-on-warning --keep-going --quiet

BIN := $(VENV)/bin
# Apache Beam needs older packages than those in the lock, except for these.
BEAM_VENV := $(VENV)-beam
BEAM_NEEDS := absl-py google-crc32c hypothesis matplotlib numpy pytest \
  sentencepiece sentencex tokenizers tqdm
BEAM_TF_VENV := $(VENV)-beam-tf
PLAN_VENV := $(VENV)-plan
BEAM_TF_NEEDS := h5py keras ml_dtypes safetensors tensorflow
CONSTRAINTS := requirements.txt requirements.lock pyproject.toml setup.py
# A package index may fail once.
INSTALL = install() { $(BIN)/python -m pip install --quiet \
  --disable-pip-version-check -c requirements.lock "$$@"; }; \
  retry() { install "$$@" || { sleep 5; install "$$@"; }; }; retry

export TF_CPP_MIN_LOG_LEVEL ?= 3
export PYTHONUNBUFFERED = 1

.PHONY: demo test test-slow test-benchmarks test-broad test-peers test-backends test-plan \
  test-beam test-all short-docs docs notebooks linkcheck install \
  install-dev install-all lint format lock clean

demo: install
	$(BIN)/python tools/demo.py $(DEMO_FLAGS)

# Tests in other environments are marked by what they need: peers, runtimes, backends.
ALONE := not broad and not peers and not runtimes and not backends and not plan

test: lint
	$(call pytest,$(VENV),test,$(ALONE) and not slow) --ignore=tests/benchmarks

test-slow: install-dev
	$(call pytest,$(VENV),slow,$(ALONE) and slow) --ignore=tests/benchmarks

test-benchmarks: install-dev
	$(call pytest,$(VENV),benchmarks,$(ALONE)) tests/benchmarks

test-broad: $(VENV)/.installed-peers
	$(call pytest,$(VENV),broad,broad)

test-peers: $(VENV)/.installed-peers
	$(call pytest,$(VENV),peers,(peers or runtimes) and not broad) $(PEER_TESTS)

test-backends: $(VENV)/.installed-backends
	$(BIN)/python -c "import jax, torch"  # where one is missing, tests are skipped
	for backend in jax torch; do \
	  $(QUICK_JAX) KERAS_BACKEND=$$backend \
	  $(call pytest,$(VENV),$$backend,not broad) $(BACKEND_TESTS) || exit 1; done
	$(if $(ENGINE_TESTS),$(QUICK_JAX) \
	  $(call pytest,$(VENV),backends,backends and not broad) $(ENGINE_TESTS))

test-plan: $(PLAN_VENV)/.installed
	PYTHONPATH=. $(call pytest,$(PLAN_VENV),plan,plan and not broad) tests/planning

test-beam: $(BEAM_VENV)/.installed $(BEAM_TF_VENV)/.installed
	$(BEAM_VENV)/bin/python -m pytest tests/data/prepare/beam_test.py tests/jobs/beam_test.py \
	  --durations=10 $(PYTEST_FLAGS)
	$(BEAM_TF_VENV)/bin/python -m pytest tests/inference/beam_test.py \
	  --durations=10 $(PYTEST_FLAGS)

# What is done at the same time takes half as long, and tests in one process share their
# imports, models and exports.
test-all:
	$(MAKE) -j 3 install-all $(BEAM_VENV)/.installed $(BEAM_TF_VENV)/.installed
	$(MAKE) $(PLAN_VENV)/.installed lint
	$(MAKE) -j $(JOBS) --output-sync=target short-docs test-backends test-plan \
	  test-beam test-peers JOBS=1 ENGINE_TESTS= PEER_TESTS=tests/peers
	JAX_DISABLE_MOST_OPTIMIZATIONS=1 $(call pytest,$(VENV),all,not broad and not plan) \
	  --ignore=tests/peers
	$(BIN)/python -m tests.seconds

# Every cell of every page, with the model of a demo of 30 steps: it says little, so
# nothing is left to a `make docs`. One recipe, as make would start the pages after
# everything that waits if the demo were a target of its own.
short-docs:
	rm -rf docs/_work docs/_build/cells
	$(MAKE) demo DEMO_FLAGS="--output_dir=docs/_work/demo_output --num_train_steps=30 \
	  --input_file=docstrings:max_bytes=1000000"
	export OMP_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1; \
	  DOCS_SHORT=1 $(MAKE) docs DOCS_ROWS="--num_train=64 --num_dev=40"
	rm -rf docs/_work docs/_build/cells

docs: $(VENV)/.installed-docs
	$(BIN)/python docs/workspace.py docs/_work $(DOCS_ROWS)
	rm -rf docs/_build/html docs/_build/doctrees docs/api/names
	$(BIN)/python -m sphinx $(SPHINX_FLAGS) -d docs/_build/doctrees docs docs/_build/html
	DOCS_HTML=docs/_build/html $(BIN)/python -m pytest tests/docs $(PYTEST_FLAGS)

notebooks: docs
	$(BIN)/python docs/keep_outputs.py

linkcheck: docs
	$(BIN)/python -m sphinx -b linkcheck -d docs/_build/doctrees docs docs/_build/linkcheck

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: install-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(VENV)/.created:
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11, 3.12 or 3.13 found;" \
	  "name one: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# A stamp is written only after the whole installation, so that one that was
# interrupted is done again.
$(VENV)/.installed: $(VENV)/.created $(CONSTRAINTS)
	@echo "Installing into $(VENV) (about 700 MB, a few minutes)"
	@$(INSTALL) -r requirements.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@$(INSTALL) -e ".[dev]"
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed-dev
	@echo "Installing what builds the documentation into $(VENV)"
	@$(INSTALL) -e ".[dev,docs]"
	@touch $@

$(VENV)/.installed-peers: $(VENV)/.installed-dev
	@echo "Installing the peers into $(VENV)"
	@$(INSTALL) -e ".[dev,peers,$(SERVING_EXTRAS)]"
	@touch $@

$(VENV)/.installed-backends: $(VENV)/.installed-dev
	@echo "Installing JAX and PyTorch into $(VENV)"
	@$(INSTALL) -e ".[dev,jax,torch]"
	@touch $@

# All of them in one go, for whoever runs everything.
install-all: $(VENV)/.installed-dev
	@$(INSTALL) -e ".[dev,docs,peers,jax,torch,$(SERVING_EXTRAS)]"
	@touch $(VENV)/.installed-docs $(VENV)/.installed-peers $(VENV)/.installed-backends

# libtpu would be asked for TPUs by every TensorFlow and JAX that finds it, and JAX's
# plugin for CUDA for GPUs.
$(PLAN_VENV)/.installed: $(VENV)/.installed-backends
	@echo "Installing the compilers of TPUs and GPUs into $(PLAN_VENV) (400 MB)"
	$(PYTHON) -m venv $(PLAN_VENV)
	$(BIN)/python -c "import site; print(site.getsitepackages()[0])" \
	  > $$(ls -d $(PLAN_VENV)/lib/python3.*/site-packages)/packages.pth
	@grep -E '^(libtpu|jax-cuda12-.*|nvidia-.*)==' requirements.lock > $(PLAN_VENV)/requirements
	@install() { $(PLAN_VENV)/bin/python -m pip install --quiet --no-deps \
	  --disable-pip-version-check -r $(PLAN_VENV)/requirements; }; \
	  install || { sleep 5; install; }
	@touch $@

# $(call install_beam, environment, packages whose versions are those of the lock)
define install_beam
	@echo "Installing Apache Beam into $(1)"
	$(PYTHON) -m venv $(1)
	@{ grep -oE '(apache-beam|dask|distributed)==[0-9.]*' pyproject.toml; \
	  grep -E "^($$(echo $(2) | tr ' ' '|'))==" requirements.lock; } \
	  > $(1)/requirements
	@install() { $(1)/bin/python -m pip install --quiet \
	  --disable-pip-version-check -r $(1)/requirements; }; \
	  install || { sleep 5; install; }
	@touch $@
endef

$(BEAM_VENV)/.installed: $(CONSTRAINTS)
	$(call install_beam,$(BEAM_VENV),$(BEAM_NEEDS))

$(BEAM_TF_VENV)/.installed: $(CONSTRAINTS)
	$(call install_beam,$(BEAM_TF_VENV),$(BEAM_NEEDS) $(BEAM_TF_NEEDS))

# New versions: edit requirements.txt and pyproject.toml, then write the closure anew.
lock:
	rm -rf .build/lock
	$(PYTHON) -m venv .build/lock
	.build/lock/bin/python -m pip install --quiet -r requirements.txt \
	  ".[dev,peers,$(SERVING_EXTRAS),parquet,hub,docs,plan,plan-gpu,torch]"
	.build/lock/bin/python -m pip check
	sed -n '/^#/p' requirements.lock > .build/requirements.lock
	.build/lock/bin/python -m pip freeze --all \
	  | grep -v -i -E '^(pip|albert[-_]tf)( @|==)' | sed 's/+cpu$$//' \
	  >> .build/requirements.lock
	mv .build/requirements.lock requirements.lock
	rm -rf .build/lock

clean:
	rm -rf $(VENV) $(BEAM_VENV) $(BEAM_TF_VENV) $(PLAN_VENV) .build docs/_build docs/_work dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
