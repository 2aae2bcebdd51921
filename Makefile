# What to do with a clone. Needs Python 3.11+ and Java 17+, everything else is fetched: `make help`.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help venv python java jars demo test quick ui lint format campaign damage bench lock pin-jars clean

# The first Python that will do; `make demo PYTHON=/path/to/python` names another.
SUITS = import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))
PYTHON ?= $(shell for each in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$each -c '$(SUITS)' >/dev/null 2>&1 && echo $$each && break; done)
READY := .venv/.ready
BIN := .venv/bin
# Options for the tool behind a target: `make test ARGS="-k lease -x"`.
ARGS ?=
# Processes that share the tests. In `make test` each has a Spark of its own and needs about 3 GB.
WORKERS ?= 2

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: java jars ## generate events and run the whole `ads` pipeline on them twice, through Dagster
	$(BIN)/tidemill demo $(ARGS)

test: java $(READY) ## the tests
	$(BIN)/tidemill jars fetch --broker
	$(BIN)/python -m pytest -m "not campaign" -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

quick: $(READY) ## the tests that need no JVM, in less than a minute
	$(BIN)/python -m pytest -m "not jvm and not campaign" -n $(WORKERS) $(ARGS)

# Dagster takes its instance's settings from DAGSTER_HOME and nowhere else: a link makes ours the ones in use.
ui: java jars ## Dagster's UI on http loopback, port 3000
	@mkdir -p .tidemill/dagster && ln -sf "$(CURDIR)/dagster.yaml" .tidemill/dagster/dagster.yaml
	DAGSTER_HOME="$(CURDIR)/.tidemill/dagster" $(BIN)/dagster dev -w workspace.yaml -h 127.0.0.1 $(ARGS)

lint: $(READY) ## ruff, mypy and the import contracts; changes nothing
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## let ruff format and fix what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

campaign: java $(READY) ## the long tests, and ten thousand cases of each that hypothesis draws
	$(BIN)/tidemill jars fetch --broker
	HYPOTHESIS_PROFILE=campaign $(BIN)/python -m pytest -m "campaign or hypothesis" $(ARGS)

damage: java $(READY) ## every file of many checkpoints damaged: `verify` against Spark, into docs/damage.md; takes hours
	$(BIN)/tidemill jars fetch --broker
	$(BIN)/python -m tests.streaming.checkpoint.campaign
	$(BIN)/python -m tests.streaming.checkpoint.campaign --spark 3.5
	$(BIN)/python -m tests.streaming.checkpoint.report

bench: java jars ## the measurements of docs/performance.md
	@set -e; for script in bench/*.py; do echo "== $$script"; $(BIN)/python "$$script" $(ARGS); done

jars: $(READY)
	$(BIN)/tidemill jars fetch

venv: $(READY) ## .venv from requirements.lock, every file checked against its hash

# Both are told in one line before anything is made, with the way to get what is missing.
python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 to 3.14 is needed; python3 is $$(python3 -V 2>&1)." \
		"Debian, Ubuntu: sudo apt install python3 python3-venv; macOS: brew install python@3.13;" \
		"or name one: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments." \
		"Debian, Ubuntu: sudo apt install python3-venv" >&2; exit 1; }

java: python
	@$(PYTHON) resources/engine/java.py

# pyspark comes as source. Its build tool is taken from the lock, like everything: a build in isolation would
# take whatever is newest. uv does in half a minute what takes pip two; but uv does not read pip's settings,
# so where those are what leads to an index, pip does it.
$(READY): requirements.lock pyproject.toml | python
	$(PYTHON) -m venv .venv
	@awk '/^[^ #]/ { wanted = /^(uv|setuptools)==/ } wanted' requirements.lock > .venv/first.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r .venv/first.lock
	$(BIN)/uv pip sync --python .venv --require-hashes --no-build-isolation requirements.lock \
		|| $(BIN)/python -m pip install --disable-pip-version-check --no-deps --require-hashes \
			--no-build-isolation -r requirements.lock
	$(BIN)/uv pip install --quiet --python .venv --offline --no-deps --no-build-isolation --editable .
	@touch $@

lock: $(READY) ## requirements.lock anew from pyproject.toml; ARGS=--upgrade moves everything that may move
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal --generate-hashes \
		--python-version 3.11 --group dev $(ARGS) --output-file requirements.lock pyproject.toml

pin-jars: java $(READY) ## the sums of the jars anew, after an edit of resources/jars/*.ivy.xml
	$(BIN)/python -m resources.jars.pin

clean: ## remove .venv and the tools' caches; lakes under .tidemill and fetched jars stay
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
