# The only entry: a fresh clone on a fresh machine needs `make demo` or `make test` and nothing before it.
# Other Python:  make test PYTHON=python3.12      Options of the demo:  make demo DEMO='--batches 20 --seed 3'
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The stamp carries the version, so that PYTHON= with another one makes the venv anew instead of using the old one.
STAMP := $(VENV)/.installed-$(shell $(PYTHON) -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)
CLASSES := $(VENV)/spark-classes.jsa
ROOTS := core simulate proto client service spark_integration cli
# More than cores: a test that waits (for a batch, a lease, a server) leaves its core to another.
WORKERS ?= 4
QUICK = tests/unit tests/property tests/client
TESTS ?= tests
RUNS ?= 5
LOOPS ?= 2
# Tests of one xdist_group share a worker, and so what is dear to set up.
PYTEST = -n $(WORKERS) --dist loadgroup $(if $(CI),--durations=25)
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

# A caller's PYTHONPATH or active venv must not decide what is tested. The suite starts hundreds of Pythons: with bytecode
# on disk none of them compiles the sources anew.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV PYTHONDONTWRITEBYTECODE

.PHONY: help venv demo test test-quick test-long test-load test-spark check lint types layers house stubs stubs-check protolint \
    reference hashes reliability sbom bench image wheel dist pictures constraints java redis clean clean-kernels

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP)  ## make or refresh .venv with exactly the versions of constraints.txt

# hatchling and setuptools first, then no build isolation: what builds is pinned as well as what is built.
$(STAMP): pyproject.toml constraints.txt
	@bash tools/check_python.sh "$(PYTHON)"
	@[ "$$($(BIN)/python -V 2>&1)" = "$$($(PYTHON) -V 2>&1)" ] && $(BIN)/python -m pip --version >/dev/null 2>&1 \
	    || { rm -rf $(VENV); $(PYTHON) -m venv $(VENV); }
	@echo "installing into $(VENV) (some minutes the first time)"
	@$(PIP) install --quiet --constraint constraints.txt hatchling editables setuptools
	@$(PIP) install --quiet --constraint constraints.txt --no-build-isolation --use-pep517 --editable '.[dev]'
	@rm -f $(VENV)/.installed-* && touch $@

demo: $(STAMP)  ## a drifting skewed stream on a local Spark, by hash and by unskew side by side (2-3 minutes)
	@JAVA_HOME="$$(bash tools/java.sh)"; export JAVA_HOME; exec $(BIN)/unskew demo $(DEMO)

java:
	@bash tools/java.sh >/dev/null

redis:
	@bash tools/redis.sh >/dev/null

# A test's Java starts twice as fast with what Spark loads at hand.
$(CLASSES): $(STAMP) tests/jvm.py
	@JAVA_HOME="$$(bash tools/java.sh)"; export JAVA_HOME; $(BIN)/python -m tests.jvm >$(VENV)/spark-classes.log 2>&1 \
	    || echo "no archive of Spark's classes ($(VENV)/spark-classes.log says why): the tests take longer"

test: $(STAMP) $(CLASSES)  ## the whole test suite, real local Spark and Redis included (minutes)
	@JAVA_HOME="$$(bash tools/java.sh)"; REDIS_SERVER="$$(bash tools/redis.sh)"; export JAVA_HOME REDIS_SERVER; \
	    $(BIN)/python -m pytest $(PYTEST) -m "not long" $(TESTS)

test-quick: $(STAMP)  ## what needs neither Java nor Redis, for the inner loop (under a minute)
	@$(BIN)/python -m pytest $(PYTEST) -m quick $(QUICK)

test-load: $(STAMP)  ## the proof that a busy machine fails no test: make test-load [RUNS=5] [LOOPS=2]
	@bash tools/test_beside_load.sh $(RUNS) $(LOOPS)

test-long: $(STAMP) $(CLASSES)  ## the same with the full dose of every check (much longer)
	@JAVA_HOME="$$(bash tools/java.sh)"; REDIS_SERVER="$$(bash tools/redis.sh)"; export JAVA_HOME REDIS_SERVER; \
	    $(BIN)/python -m pytest $(PYTEST) tests

test-spark:  ## tests/spark on another PySpark, 4.0 to 4.2: make test-spark SPARK=4.0 [TESTS="paths"]
	@bash tools/test_spark.sh "$(PYTHON)" "$(or $(SPARK),$(error say which: make test-spark SPARK=4.0))" $(TESTS)

check: lint types layers house stubs-check protolint  ## ruff, mypy strict, import contracts, the house, stubs up to date, contract

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The last numpy for Python 3.10 has older stubs, by which mypy judges differently.
types: $(STAMP)
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; \
	then echo "$(BIN)/mypy $(ROOTS)"; $(BIN)/mypy $(ROOTS); \
	else echo "mypy: left out on Python 3.10; make check PYTHON=python3.11 (or newer) runs it"; fi

layers: $(STAMP)
	$(BIN)/lint-imports

house: $(STAMP)
	$(BIN)/python -m tools.house --figures

stubs-check: $(STAMP)
	$(BIN)/python tools/stubs.py --check

protolint: $(STAMP)
	$(BIN)/python tools/protolint.py

stubs: $(STAMP)  ## generate the protobuf stubs that are committed
	$(BIN)/python tools/stubs.py

reference: $(STAMP)  ## write what is made of the code: docs/reference, the dashboards, the chart's table of values
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.house_map
	$(BIN)/python -m tools.dashboards
	$(BIN)/python tools/chart_readme.py

bench: $(STAMP)  ## every benchmark, one after another
	$(BIN)/python tools/run_benchmarks.py

image:  ## build an image: make image PYTHON_DIGEST=sha256:... [TARGET=executor SPARK_DIGEST=sha256:...]
	@bash tools/image.sh $(or $(TARGET),service)

reliability: $(STAMP) $(CLASSES)  ## the figures of docs/reliability.md: make reliability [RELIABILITY="--quick --figures 3,8"] (hours without)
	@JAVA_HOME="$$(bash tools/java.sh)"; REDIS_SERVER="$$(bash tools/redis.sh)"; export JAVA_HOME REDIS_SERVER; \
	    exec $(BIN)/python -m benchmarks.reliability $(RELIABILITY)

hashes: $(STAMP)  ## requirements/*.txt: what the images install, with hashes, after a change of constraints.txt
	$(BIN)/python -m tools.requirements

sbom: $(STAMP)  ## what the images carry: CycloneDX lists into dist/, licences into docs/licences.md
	$(BIN)/python tools/sbom.py

pictures: $(STAMP)  ## take the pictures of the documentation anew, from a run of the demo and of the service's page
	@JAVA_HOME="$$(bash tools/java.sh)"; export JAVA_HOME; $(BIN)/python tools/before_after.py && $(BIN)/python tools/page_pictures.py

wheel: $(STAMP)  ## build the wheel into dist/
	$(BIN)/python -m build --wheel --no-isolation --outdir dist

dist: $(STAMP)  ## build sdist and wheel into dist/
	$(BIN)/python -m build --no-isolation --outdir dist

constraints:  ## resolve constraints.txt anew: make constraints PYTHONS="python3.10 python3.11 ..."
	$(PYTHON) tools/constraints.py $(or $(PYTHONS),$(error say which: make constraints PYTHONS="python3.10 python3.11 python3.12 python3.13"))

clean-kernels:  ## forget compiled kernels: numba does not notice an edit in another file
	find core -name '*.nb[ic]' -delete

clean:  ## remove the venv, caches and everything built
	rm -rf $(VENV) .venv-spark-* dist build demo-report .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
