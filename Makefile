# The commands of a clone; `make help` lists them. They need Python 3.11+ and Java 17+ and fetch everything else.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help venv python java jars demo test test-full quick ui lint format reference \
	campaign conformance changes warm-test cluster-test store-test damage kills bench bench-reading bench-long bench-quick lock pin-jars clean

# The first suitable Python; `make demo PYTHON=/path/to/python` names another one.
IS_SUITABLE = import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$name -c '$(IS_SUITABLE)' >/dev/null 2>&1 && echo $$name && break; done)
READY := .venv/.ready
BIN := .venv/bin
# Compiled modules are kept: hundreds of them are loaded at each start of a command.
unexport PYTHONDONTWRITEBYTECODE
# Options for the tool behind a target: `make test ARGS="-k lease -x"`.
ARGS ?=
# Processes that share the tests. In `make test` each has a Spark of its own and needs about 3 GB. On two cores a third
# one saves a seventh of the time, because tests also wait: for processes, clocks and files.
WORKERS_IN_MEMORY = /^MemAvailable/ { three = $$2 > 12e6 } END { print three ? 3 : 2 }
WORKERS ?= $(shell cat /proc/meminfo 2>/dev/null | awk '$(WORKERS_IN_MEMORY)')

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: java jars ## generate ad events and run the pipeline `ads` on them twice, through Dagster
	$(BIN)/tidemill demo $(ARGS)

test: java $(READY) ## run the tests
	$(BIN)/tidemill jars fetch --broker --store s3
	$(BIN)/python -m pytest -m "not campaign" -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
		--durations 10 --durations-min 30 $(ARGS)

test-full: java $(READY) ## run all tests: kills at every step, every kind of stream; takes about three times as long as `test`
	$(BIN)/tidemill jars fetch --broker --store s3
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 30 $(ARGS)

quick: $(READY) ## run the tests that need no JVM, in less than a minute
	$(BIN)/python -m pytest -m "not jvm and not campaign and not slow" -n $(WORKERS) $(ARGS)

# Dagster reads the settings of its instance from DAGSTER_HOME only, so ours are linked into that folder. The check of
# YAML components comes with a warning about a preview component of dagster-spark; loading the definitions checks them.
ui: java jars ## start Dagster's UI on http loopback, port 3000
	@mkdir -p .tidemill/dagster && ln -sf "$(CURDIR)/resources/dagster/dagster.yaml" .tidemill/dagster/dagster.yaml
	DAGSTER_HOME="$(CURDIR)/.tidemill/dagster" $(BIN)/dg dev --no-check-yaml --host 127.0.0.1 $(ARGS)

lint: $(READY) ## run ruff, mypy, the import contracts and the list of banned words; changes nothing
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/words.py
	$(BIN)/python .ci/local_files.py

format: $(READY) ## format the code and let ruff fix what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

reference: $(READY) ## write docs/reference.md from the docstrings
	$(BIN)/python .ci/reference.py

campaign: java $(READY) ## run the long tests, and ten thousand cases of each hypothesis test
	$(BIN)/tidemill jars fetch --broker --store s3
	HYPOTHESIS_PROFILE=campaign $(BIN)/python -m pytest -m "campaign or hypothesis" $(ARGS)

# Its exit status is that of the page: not zero where a row has no test, or one that did not pass.
conformance: java $(READY) ## test each row of the conformance table, and write docs/conformance.md and docs/gallery.md
	$(BIN)/tidemill jars fetch --broker
	-$(BIN)/python -m pytest -n 2 --dist loadfile --junitxml .tidemill/conformance.xml tests/conformance $(ARGS)
	$(BIN)/python -m tests.conformance.report .tidemill/conformance.xml; passed=$$?; \
		$(BIN)/ruff format --quiet docs/gallery.md; exit $$passed

# The tests of what streams write, wherever Spark runs: about 20 minutes on a warm server, 25 on a cluster.
WRITES = $(patsubst %,tests/%.py,run/test_faults operations/test_backfill operations/test_rewind \
	operations/test_rebuild operations/test_reset run/test_runner sinks/test_merge_changes run/quarantine/test_quarantine \
	run/batch/test_ingest)

warm-test: java $(READY) ## run the tests of what streams write on a warm server
	$(BIN)/tidemill jars fetch --broker
	TEST_SPARK=warm $(BIN)/python -m pytest -m "jvm and not campaign" $(WRITES) $(ARGS)

cluster-test: java $(READY) ## the same on a standalone cluster on loopback; run `ads` there and kill its parts
	$(BIN)/tidemill jars fetch --broker
	$(BIN)/python -m pytest -m campaign tests/cluster $(ARGS)
	TEST_SPARK=cluster $(BIN)/python -m pytest -m "jvm and not campaign" $(WRITES) $(ARGS)

store-test: java $(READY) ## the same with the lake on S3; drivers that commit at the same moments
	$(BIN)/tidemill jars fetch --broker --store s3
	$(BIN)/python -m pytest tests/storage tests/records tests/engines/test_log_store.py tests/engines/test_lost_commits.py \
		tests/project/test_lake_on_s3.py $(ARGS)
	TEST_LAKE=s3 $(BIN)/python -m pytest tests/run/test_paused_holder.py tests/run/sources/test_files_on_s3.py \
		tests/pipelines/ads/test_on_s3.py $(ARGS)
	TEST_LAKE=s3 $(BIN)/python -m pytest -m "jvm and not campaign" $(WRITES) $(ARGS)

changes: java $(READY) ## edit streams, files and tables at random between runs, and compare with plain Python
	$(BIN)/tidemill jars fetch --broker
	$(BIN)/python -m bench.changes.campaign $(ARGS)

damage: java $(READY) ## damage every file of many checkpoints and write docs/damage.md; takes hours
	$(BIN)/tidemill jars fetch --broker
	$(BIN)/python -m bench.damage.campaign
	$(BIN)/python -m bench.damage.campaign --spark 3.5
	$(BIN)/python -m bench.damage.report

kills: java $(READY) ## kill 100 runs at random moments and compare every table; takes about an hour
	$(BIN)/tidemill jars fetch --broker
	$(BIN)/python -m bench.kills.campaign $(ARGS)

# Each line is a script of bench/ and its flags.
define BENCH
pipeline_run.py
merge.py
throughput.py
state.py
increment/measure.py
ingest.py
endef
define BENCH_READING
checkpoint_reader.py
checks.py
ticks/measure.py
object_store/measure.py
endef
define BENCH_LONG
windows.py
watermarks.py
increment/jvm.py
growth.py --increments 1000
endef
define BENCH_QUICK
merge.py --rows 20000 --changes 1000 --keys clustered --rounds 1
throughput.py --records 100000 --sources files --rounds 1
state.py --keys 100000 --rounds 1
increment/measure.py --only hops --without-peers --first 25000 --rounds 1
ingest.py --records 100000 --sources files --refused 0.03 --rounds 1
growth.py --increments 10 --around 1
endef
export BENCH BENCH_READING BENCH_LONG BENCH_QUICK

define run-scripts
$(BIN)/tidemill jars fetch --broker
@$(BIN)/python bench/versions.py
@set -e; echo "$(SCRIPTS)" | while read -r script; do \
	echo "== $$script"; began=$$(date +%s); $(BIN)/python bench/$$script </dev/null; \
	echo "took $$(($$(date +%s) - began)) s"; \
done
endef

bench: SCRIPTS = $$BENCH
bench: java $(READY) ## compare with plain Spark and with peers; takes about an hour, and nothing else may run meanwhile
	$(run-scripts)

bench-reading: SCRIPTS = $$BENCH_READING
bench-reading: java $(READY) ## measure ticks, checks, the checkpoint reader and a slow object store, which need no Spark
	$(run-scripts)

bench-long: SCRIPTS = $$BENCH_LONG
bench-long: java $(READY) ## measure options, confs and the growth to the 1,000th increment; takes about an hour
	$(run-scripts)

bench-quick: SCRIPTS = $$BENCH_QUICK
bench-quick: java $(READY) ## try most measurements with little data, in less than eight minutes
	$(run-scripts)

jars: $(READY)
	$(BIN)/tidemill jars fetch

venv: $(READY) ## create .venv from requirements.lock, every file checked against its hash

# Each prints one line about what is missing and how to get it, before anything is created.
python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 to 3.14 is needed; python3 is $$(python3 -V 2>&1)." \
		"Debian, Ubuntu: sudo apt install python3 python3-venv; macOS: brew install python@3.13;" \
		"or name one: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot create virtual environments." \
		"Debian, Ubuntu: sudo apt install python3-venv" >&2; exit 1; }

java: python
	@$(PYTHON) tidemill/engines/java.py

# pyspark is a source package. Its build tool comes from the lock, like everything else: a build in isolation would
# use the newest release. uv takes half a minute where pip takes two, but it does not read pip's settings, so pip
# installs the lock where uv cannot reach an index.
$(READY): requirements.lock pyproject.toml | python
	$(PYTHON) -m venv .venv
	@awk '/^[^ #]/ { wanted = /^(uv|setuptools)==/ } wanted' requirements.lock > .venv/first.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r .venv/first.lock
	$(BIN)/uv pip sync --python .venv --require-hashes --no-build-isolation requirements.lock \
		|| $(BIN)/python -m pip install --disable-pip-version-check --no-deps --require-hashes \
			--no-build-isolation -r requirements.lock
	$(BIN)/uv pip install --quiet --python .venv --offline --no-deps --no-build-isolation --editable .
	@touch $@

lock: $(READY) ## write requirements.lock and deploy/postgres.lock; ARGS=--upgrade updates every package
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal --generate-hashes \
		--python-version 3.11 --group dev --extra postgres $(ARGS) --output-file requirements.lock pyproject.toml
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-deps \
		--python-version 3.11 $(ARGS) --output-file deploy/postgres.lock deploy/postgres.in

pin-jars: java $(READY) ## write the checksums of the jars, and compile ours, after an edit in tidemill/engines/jars; needs javac
	$(BIN)/python -m tidemill.engines.jars.pin
	$(BIN)/python -m tidemill.engines.jars.log_store.compile

clean: ## remove .venv and the tools' caches; keep lakes under .tidemill and fetched jars
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
