# Everything runs in .venv, which is made when it is first needed. `make` alone prints the lines below.
#|
#| pawlock: distributed locks for Python on Redis and Valkey
#|
#|   make demo        see it work: workers sell a stock, one is killed while it holds the lock (a minute)
#|   make test        lint, then the tests; needs neither root nor a server; ends with what was skipped and why
#|   make test-full   all of it, slow tests too, on every server; on Debian as root it installs redis-server
#|   make interop     one lock with Redisson, Spring, Go and Node clients: installs them, then tests
#|   make soak        everything at once on a real server, for MINUTES=60; ends with a summary, also at Ctrl-C
#|   make lint        ruff, mypy, pyright, layers, paths: one line each
#|   make format      let ruff rewrite what it can
#|   make bench       against other lock libraries, side by side; ARGS="P1 --quick" chooses
#|   make docs        build the documentation into site/
#|   make clean       remove .venv and everything else that make made
#|
#| Each needs Python 3.11 or later and a package index; PYTHON=/path/to/python names another Python.
#| Some tests only:  make env-dev && .venv/bin/pytest tests/docs/test_docs.py -k readme
#|
SHELL := /bin/bash
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.SILENT:
.PHONY: help demo test test-full interop soak lint format bench docs clean env-demo env-dev env-docs

PY := .venv/bin/python
export PYTHON MAKECMDGOALS
# Some images set it, and each of the commands that the tests start would compile all of pawlock anew.
unexport PYTHONDONTWRITEBYTECODE
# Other images set this one, and output that is buffered, as users have it, would not be tested.
unexport PYTHONUNBUFFERED
# More for the program that a target runs: make test ARGS="-k fence"
ARGS ?=
# The whole of `make test` runs at least so many percent of the lines; some tests need not.
COVERAGE := $(if $(ARGS),,--cov --cov-report= --cov-fail-under=80)

help:
	sed -n 's/^#| \{0,1\}//p' Makefile

env-demo env-dev env-docs env-bench:
	tools/setup_env.sh $(@:env-%=%)

demo: env-demo
	exec $(PY) -m demo $(ARGS)

lint: env-dev
	exec $(PY) tools/lint.py

format: env-dev
	$(PY) -m ruff check --fix --exit-zero --quiet .
	$(PY) -m ruff format .

# The shell counts the CPU of all that it waited for; programs that were detached on purpose are not among it.
test: env-dev
	code=0; $(PY) tools/lint.py || exit 1; echo "tests"; \
	PAWLOCK_LINT_SKIPS=.make/skips $(PY) -m pytest -q -m "not slow" -n auto --dist worksteal \
	    $(COVERAGE) $(ARGS) || code=$$?; \
	times >.make/times; \
	awk -F '[ms ]' 'NR == 2 {printf "CPU of lint and tests: %.0f s\n", 60 * $$1 + $$2 + 60 * $$4 + $$5}' .make/times; \
	exit $$code

test-full: env-dev env-docs
	exec tools/test_full.sh $(ARGS)

# Into .interop/, from PyPI, npm, the Go proxy and Maven Central; what a machine lacks is skipped with a line.
# PAWLOCK_INTEROP=require make interop: what is skipped is a failure.
interop: env-dev
	$(PY) -m interop.install
	exec $(PY) -m pytest -q -n 2 --dist worksteal --timeout 600 interop --durations=5 $(ARGS)

MINUTES ?= 60

soak: env-dev
	exec $(PY) -m tests.nightly.workloads.soak --minutes $(MINUTES) $(ARGS)

bench: env-bench
	exec $(PY) -m benchmarks $(ARGS)

docs: env-docs
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true exec $(PY) -m mkdocs build --strict

clean:
	rm -rf .venv .make .interop site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	echo "clean"
