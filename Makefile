# One command each. Every target first makes .venv, with the versions that constraints.txt pins.
#   make run          train the models side by side on two embedded graphs, write reports
#   make test         the tests of the package, its docstrings, and of the battery
#   make test-pages   the tests of the documentation's numbers, snippets and notebooks, of the examples, and of the benchmarks' scripts
#   make test-triton  the GPU kernels in Triton's interpreter, compiled for sm_80, 90 and 100; takes no GPU
#   make test-slow    the studies that take minutes
#   make test-lowest  the test suite on the lowest version of each direct requirement, in .venv-lowest
#   make test-newest  the test suite on the newest version of each requirement, in .venv-newest
#   make battery      what tries to break the library, a fiftieth of it; SHARE=1 is all of it, hours
#   make mutation     single changes of ops, graph and structure that a test should notice; SHARE=1 is all, hours
#   make check        format, lint, types
#   make bench        speed and memory of the kernels, beside PyG's
#   make docs         the documentation into docs/_build/html; warnings are errors
#   make dist         wheel and sdist, twice to the same bytes; the core's tests where only it is installed, then the command
#   make format       put the source into the format that `make check` asks for
#   make clean        remove .venv and everything else that was made
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
PIP := $(BIN)/python $(PIP_INSTALL) --constraint constraints.txt
# Without pytest's record of what is logged, for which it goes over hundreds of loggers six times in every test.
PYTEST := $(BIN)/python -m pytest -p no:logging
# One thread each for the two processes; a test that is about threads asks for them.
THREADS := OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=2

.DEFAULT_GOAL := help
.PHONY: help run test test-pages test-triton test-slow test-lowest test-newest battery mutation check bench docs dist format clean

help:
	@sed -n 's/^#   //p' Makefile

# torch comes first and alone, pinned: an open range would fetch a build of gigabytes only to replace it.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("graphtheory needs Python 3.10 or later, $(PYTHON) is " + sys.version)'
	@echo "Setting up .venv (a few minutes the first time)"
	@$(PYTHON) -m venv .venv
	@echo "  torch" && $(PIP) torch
	@echo "  graphtheory and what it needs" && $(PIP) --editable '.[test,dev]'
	@touch $@

# First labels that the nodes at two hops decide, where distance encoding pays; then digits, which one hop decides.
run: $(READY)
	@$(BIN)/graphtheory bench --dataset core-distance --seeds 3 --models gt,gt-plain,gcn-res,gat-res,sgformer,mlp
	@$(BIN)/graphtheory bench

PAGES := tests/docs tests/benchmarks tests/test_examples.py
TRITON := tests/ops/backends/triton
test: $(READY)
	@$(THREADS) $(PYTEST) --quiet --numprocesses 2 --dist worksteal --durations 10 --durations-min 5 $(patsubst %,--ignore %,$(PAGES) $(TRITON))

test-pages: $(READY)
	@$(THREADS) $(PYTEST) --quiet --numprocesses 2 --dist worksteal --durations 5 --durations-min 5 $(PAGES)

# The version stands here and not in constraints.txt because torch's CUDA builds bring one of their own.
.venv/.triton: $(READY)
	@$(PIP) triton==3.9.0
	@touch $@

test-triton: .venv/.triton
	@$(THREADS) $(PYTEST) --quiet --numprocesses 2 --durations 5 tests/ops/backends tests/ops/test_kernels.py

test-slow: $(READY)
	@$(PYTEST) --quiet -m slow --timeout 3600 --durations 0

# The lower bounds of pyproject.toml read as exact versions, torch as constraints.txt pins it; its own lower bound, a
# build of gigabytes, by `make test-lowest TORCH=torch==2.10.0`. Versions this old warn of what changed since, so here
# warnings are shown and not errors.
test-lowest: TORCH ?= --constraint constraints.txt torch
test-lowest: pyproject.toml constraints.txt
	@$(PYTHON) -m venv --clear .venv-lowest
	@sed -n 's/^  "\([a-z-]*\)>=\([0-9.]*\)".*/\1==\2/p' pyproject.toml | grep -v '^torch==' > .venv-lowest/lowest.txt
	@.venv-lowest/bin/python $(PIP_INSTALL) $(TORCH)
	@.venv-lowest/bin/python $(PIP_INSTALL) --constraint .venv-lowest/lowest.txt --editable '.[test]'
	@$(THREADS) .venv-lowest/bin/python -m pytest --quiet --numprocesses 2 -W default

# With models of Hugging Face and timm, whose torchvision has to fit torch, a build of gigabytes;
# `make test-newest TORCH="torch==2.14.1 torchvision==0.29.1" PYTHON=python3.13` takes these.
test-newest: TORCH ?= torch torchvision
test-newest: pyproject.toml
	@$(PYTHON) -m venv --clear .venv-newest
	@.venv-newest/bin/python $(PIP_INSTALL) $(TORCH) --editable '.[test,hf,timm,partition]'
	@$(THREADS) .venv-newest/bin/python -m pytest --quiet --numprocesses 2

SHARE := 0.02
battery: $(READY)
	@$(THREADS) $(BIN)/python -m battery --share $(SHARE)

SEED := 0
mutation: $(READY)
	@$(BIN)/python -m battery mutation --share $(SHARE) --seed $(SEED)

check: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

# A script that ends with 2 measures what this machine does not have.
bench: $(READY)
	@for script in benchmarks/[a-z]*.py; do $(BIN)/python "$$script" || [ $$? -eq 2 ] || exit; done

.venv/.docs: $(READY)
	@$(PIP) --editable '.[docs]'
	@touch $@

docs: .venv/.docs
	@$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	@echo "Written to docs/_build/html"

# The core has no package of the extra `lab`: its tests run where none is installed.
CORE := $(patsubst %,tests/%,conformance data graph integrations models nn ops patterns structure test_import.py)
TESTS_OF_CORE := pytest pytest-timeout pytest-xdist hypothesis
# PYTHONS="python3.10 python3.13" tries the wheel on each of these. The date inside is that of the last commit.
PYTHONS ?= $(PYTHON)
dist: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct)
dist: $(READY)
	@rm -rf dist
	@for to in dist dist/again; do $(BIN)/python -m build --no-isolation --outdir $$to . > /dev/null || exit; done
	@cd dist && for file in *.whl *.tar.gz; do cmp $$file again/$$file || exit; done && rm -r again && sha256sum *
	@for python in $(PYTHONS); do \
	  $$python --version && $$python -m venv --clear .venv-dist && \
	  .venv-dist/bin/python $(PIP_INSTALL) --constraint constraints.txt dist/*.whl && \
	  .venv-dist/bin/python $(PIP_INSTALL) --constraint constraints.txt $(TESTS_OF_CORE) && \
	  (.venv-dist/bin/graphtheory doctor; test $$? -eq 1) && \
	  $(THREADS) .venv-dist/bin/python -m pytest --quiet --numprocesses 2 $(CORE) && \
	  .venv-dist/bin/python $(PIP_INSTALL) --constraint constraints.txt "$$(ls dist/*.whl)[lab]" && \
	  (cd / && PYTHONPATH= $(CURDIR)/.venv-dist/bin/graphtheory doctor) || exit; \
	done

format: $(READY)
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

clean:
	@rm -rf .venv .venv-lowest .venv-newest .venv-dist dist docs/_build docs/_generated .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
