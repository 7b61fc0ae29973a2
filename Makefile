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

BOOKS  := $(patsubst notebooks/%.ipynb,%,$(wildcard notebooks/*.ipynb))
LENGTH := $(sort $(filter length_%,$(BOOKS)))
NAMES  := $(LENGTH) $(sort $(filter-out $(LENGTH),$(BOOKS)))

.DEFAULT_GOAL := help
.PHONY: help figures figure why test lint lab claims book bench refresh reference clean check-python need-fig

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1|/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "make %-10s %s\n", $$1, $$2}'
	@echo 'Options: PROFILE=paper DEVICE=cuda PYTHON=python3 LOCK= -j2'

figures: $(READY) ## every figure whose inputs changed, then the claims
	@# A request that is refused is refused once, before anything runs.
	@$(RUN) why $(NAMES) $(PLACE) >/dev/null
	@status=0; \
	$(MAKE) --keep-going --no-print-directory $(addprefix run-,$(NAMES)) || status=1; \
	$(PY) -m paperlib.report.claims --profile $(PROFILE) || status=1; \
	if [ $$status != 0 ]; then echo 'figures: not all succeeded, see above' >&2; fi; \
	exit $$status

run-%: $(READY)
	@$(RUN) figures $* $(PLACE)

figure: need-fig $(READY) ## one figure: FIG=length_fig1_depth ARGS="-p nets 100"
	@$(RUN) figures $(FIG) $(PLACE) $(ARGS)

why: need-fig $(READY) ## why that figure would run or be reused: FIG=length_fig1_depth
	@$(RUN) why $(FIG) $(PLACE) $(ARGS)

test: lint ## style, unit, property, fault and notebook tests
	$(PY) -m pytest -q -n 2 tests --ignore tests/reference
	$(RUN) check
	$(PY) -m pytest -q tests/reference

lint: $(READY) ## style only
	$(PY) -m ruff check .

lab: $(READY) ## open the notebooks in JupyterLab: ARGS="--no-browser"
	$(PY) -m jupyter lab notebooks $(ARGS)

claims: $(READY) ## the papers' claims with our verdicts
	@$(PY) -m paperlib.report.claims --profile $(PROFILE)

book: $(READY) ## the notebooks as HTML pages that need no network
	@$(PY) -m paperlib.report.book --profile $(PROFILE)

bench: $(READY) ## our speed against the plain way
	$(PY) -m paperlib.bench

refresh: $(READY) ## put fresh outputs into the committed notebooks
	@$(RUN) refresh $(FIG)

reference: $(READY) ## take the present figure data as what tests compare with
	rm -f tests/reference/*.csv
	cp figures/quick/*.csv tests/reference/

clean: ## remove what was computed; the environment and committed files stay
	rm -rf build

need-fig:
	@[ -n "$(FIG)" ] || { echo 'say which figure: make figure FIG=NAME, one of: $(NAMES)' >&2; exit 2; }

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
