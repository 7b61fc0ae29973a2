# Every target is a thin call of a Python command; make's timestamps decide nothing.
# Works with GNU Make 3.81 and later.

# All paths are relative to this folder.
ifneq ($(realpath .),$(realpath $(dir $(lastword $(MAKEFILE_LIST)))))
$(error run make in the folder of this Makefile, e.g. with make -C)
endif

# A set of parameters: quick, paper.
PROFILE ?= quick
# cpu, cuda or mps; empty: what each notebook says.
DEVICE ?=
# The interpreter of an environment of your own; empty: .venv is made.
PYTHON ?=
# Exact versions of all packages; empty: the newest that fit.
LOCK ?= requirements.lock
# Folders of data sets and of trained runs; empty: build/data and build/runs.
DATA ?=
STORE ?=
# Folders of photos, train/<wnid>/*.JPEG and val/<wnid>/*.JPEG: ILSVRC-2012, Imagenette.
IMAGENET ?=
IMAGENETTE ?=
# Processes that train at once; empty: the number of -j, else all cores (always with Make 3.81).
JOBS ?=
FIG ?=
ARGS ?=

# The environment is made again exactly when what it is made from changes.
STATE := $(word 1,$(shell cat pyproject.toml $(LOCK) | cksum))
READY := $(if $(PYTHON),check-python,.venv/ready-$(STATE))
# A file's name may hold spaces; a command may have words of its own.
QUOTE := $(if $(PYTHON),$(shell [ -x "$(PYTHON)" ] && echo '"'))
PY    := $(if $(PYTHON),$(QUOTE)$(PYTHON)$(QUOTE),.venv/bin/python)
RUN   := $(PY) -m paperlib.runner
PLACE := --profile $(PROFILE) $(if $(DEVICE),--device $(DEVICE))
# MAKEFLAGS holds -j only inside a recipe.
COUNT  = $(or $(JOBS),$(patsubst -j%,%,$(firstword $(filter -j%,$(MAKEFLAGS)))))
TRAIN  = $(PY) -m paperlib.experiments.trainings $(if $(COUNT),--jobs $(COUNT))

BOOKS  := $(patsubst notebooks/%.ipynb,%,$(wildcard notebooks/*.ipynb))
# Those that need neither data nor trained networks come first.
DRAWN  := $(sort $(filter length_% layers_fig10_blocks,$(BOOKS)))
LAYERS := $(sort $(filter-out $(DRAWN),$(BOOKS)))
NAMES  := $(DRAWN) $(LAYERS)

GO_ON  := --keep-going --no-print-directory

.DEFAULT_GOAL := help
.PHONY: help figures figure why data runs test lint lab claims book bench refresh reference clean
.PHONY: layers-figures check-python check-jobs need-fig

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1|/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "make %-10s %s\n", $$1, $$2}'
	@echo 'Options: PROFILE=paper DEVICE=cuda DATA=folder STORE=folder PYTHON=python3 LOCK= JOBS=4 -j2'

figures: check-jobs $(READY) ## every figure whose inputs changed, then the claims
	@# A request that is refused is refused once, before anything runs.
	@$(RUN) why $(NAMES) $(PLACE) >/dev/null
	@status=0; \
	$(if $(DRAWN),$(MAKE) $(GO_ON) $(addprefix run-,$(DRAWN)) || status=1;) \
	$(if $(LAYERS),$(MAKE) $(GO_ON) layers-figures || status=1;) \
	$(PY) -m paperlib.report.claims --profile $(PROFILE) || status=1; \
	if [ $$status != 0 ]; then echo 'figures: not all succeeded, see above' >&2; fi; \
	exit $$status

layers-figures: $(READY)
	@# Notebooks that need a failed training fail with the same words; the others need not.
	@$(TRAIN) $(LAYERS) $(PLACE) || [ $$? != 3 ] || \
	  { echo 'figures: no data, so these are left out: $(LAYERS)' >&2; exit 1; }
	@$(MAKE) $(GO_ON) $(addprefix run-,$(LAYERS))

run-%: $(READY)
	@$(RUN) figures $* $(PLACE)

figure: need-fig $(READY) ## one figure: FIG=length_fig1_depth ARGS="-p nets 100"
	@$(RUN) figures $(FIG) $(PLACE) $(ARGS)

why: need-fig $(READY) ## why that figure would run or be reused: FIG=length_fig1_depth
	@$(RUN) why $(FIG) $(PLACE) $(ARGS)

data: $(READY) ## fetch and verify the data sets
	@$(PY) -m paperlib.training.data

runs: check-jobs $(READY) ## train what the figures still need: -j4, FIG=layers_fig01_fcn_mnist
	@$(if $(FIG)$(LAYERS),$(TRAIN) $(or $(FIG),$(LAYERS)) $(PLACE) $(ARGS))

test: check-jobs lint ## style, unit, property, fault and notebook tests
	@$(PY) -m paperlib.training.data || echo 'no data: tests that need them are skipped'
	$(PY) -m pytest -q -n 2 tests --ignore tests/reference
	$(if $(LAYERS),$(TRAIN) $(LAYERS) --profile quick)
	$(RUN) check
	$(PY) -m pytest -q tests/reference

lint: $(READY) ## style only
	$(PY) -m ruff check .

lab: $(READY) ## open the notebooks in JupyterLab: ARGS="--no-browser"
	$(PY) -m jupyter lab notebooks $(ARGS)

claims: $(READY) ## the verdicts on the papers' claims; writes figures/<PROFILE>/CLAIMS.md
	@$(PY) -m paperlib.report.claims --profile $(PROFILE)

book: $(READY) ## the notebooks as HTML pages that need no network
	@$(PY) -m paperlib.report.book --profile $(PROFILE)

bench: $(READY) ## our speed against the plain way: ARGS=--quick
	$(PY) -m paperlib.bench $(ARGS)

refresh: $(READY) ## put fresh outputs into the committed notebooks
	@$(RUN) refresh $(FIG)

reference: $(READY) ## take the present figure data as what tests compare with
	rm -f tests/reference/*.csv
	cp figures/quick/*.csv tests/reference/

clean: ## remove what was computed, but not data and trained runs
	@for path in build/*; do \
	  case $$path in \
	    build/data|build/runs) echo "kept: $$path" ;; \
	    *) rm -rf "$$path" ;; \
	  esac; \
	done

need-fig:
	@[ -n "$(FIG)" ] || { echo 'say which figure: make figure FIG=NAME, one of: $(NAMES)' >&2; exit 2; }

check-jobs:
	@case '$(JOBS)' in *[!0-9]*|0) \
	  echo 'JOBS=$(JOBS): give the number of processes, or nothing for all cores' >&2; exit 2;; esac

check-python:
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'PYTHON=$(PYTHON): no Python 3.11 or later' >&2; exit 2; }
	@$(PY) -c 'from importlib.util import find_spec; exit(None in map(find_spec, ("papermill", "torch", "nbval")))' \
	  || { echo 'PYTHON=$(PYTHON) lacks packages: $(PYTHON) -m pip install -e ".[dev]"' >&2; exit 2; }

.venv/ready-%:
	@python=; for p in python3 python3.13 python3.12 python3.11; do \
	  if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$p; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo 'no Python 3.11 or later on PATH: install one, or give it as PYTHON=' >&2; exit 2; fi; \
	if ! $$python -c 'import ensurepip, venv' 2>/dev/null; then \
	  echo "$$python lacks venv: install it (Debian: apt install python3-venv), or give PYTHON=" >&2; exit 2; fi; \
	echo 'installing packages into .venv: once, a few minutes'; \
	[ -x .venv/bin/python ] || $$python -m venv .venv
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check $(if $(LOCK),-c $(LOCK)) -e ".[dev]"
	@rm -f .venv/ready-* && touch $@
