# Everything a contributor runs. `make` alone lists it.
VENV := .venv
READY := $(VENV)/.ready
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)
APT_INSTALL := DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends
IS_ROOT_ON_DEBIAN := [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null
# The first Python from 3.11 on; 3.11 is what constraints.txt was made with.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)
ARGS ?=
# A machine that never keeps compiled modules compiles all of Calve's in each of hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=
FAST := tests/lint tests/unit tests/simulation/test_histories.py

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup hudi hudi-spark java python browser postgres lint test test-all test-fast demo demo-mirror demo-postgres demo-hudi dev bench faults soak side-by-side screenshots clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: java $(READY) ## Virtual environment with pinned dependencies, jars, Java 17 if it can be installed

$(READY): pyproject.toml constraints.txt | java python
	@[ -x $(VENV)/bin/pip ] || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev,postgres,s3,ui]' -c constraints.txt
	$(VENV)/bin/python -m calve.sink_core.jars
	$(VENV)/bin/calve spark prepare
	@touch $@

hudi: setup # Hudi's client
	@$(VENV)/bin/calve hudi prepare

hudi-spark: setup # Hudi's client, and the Spark 3.5 of its row changes
	@$(VENV)/bin/calve hudi prepare --row-changes

java:
	@if ! $(JAVA) -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])'; then \
	  if $(IS_ROOT_ON_DEBIAN); then \
	    echo "Java 17 is missing: installing it"; \
	    apt-get update -qq && { $(APT_INSTALL) openjdk-17-jre-headless || $(APT_INSTALL) openjdk-21-jre-headless; }; \
	  else \
	    echo "Kafka and Spark need Java 17 or newer: install it (Debian/Ubuntu: apt-get install" \
	      "openjdk-17-jre-headless) or set JAVA_HOME" >&2; exit 1; \
	  fi; \
	fi

python:
	@[ -n "$(PYTHON)" ] || { echo "Python 3.11 or newer is needed: install it, or say where it is: make PYTHON=/path/to/python3" >&2; exit 1; }
	@[ -x $(VENV)/bin/pip ] || $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  if $(IS_ROOT_ON_DEBIAN); then apt-get update -qq && $(APT_INSTALL) "$$(basename $(PYTHON))-venv"; \
	  else echo "$(PYTHON) lacks venv: install it (Debian/Ubuntu: apt-get install $(PYTHON)-venv)" >&2; exit 1; fi; }

browser: ## Chromium for the tests of the UI, if it can be installed
	@[ -n "$$CALVE_BROWSER" ] || command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
	  if $(IS_ROOT_ON_DEBIAN); then \
	    echo "Chromium is missing: installing it"; apt-get update -qq && $(APT_INSTALL) chromium; \
	  else \
	    echo "The tests of the UI need Chromium: install it, or set CALVE_BROWSER to a browser" >&2; exit 1; \
	  fi; \
	}

postgres: ## PostgreSQL for the tests of its changes, if it can be installed
	@[ -n "$$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null)" ] || command -v initdb >/dev/null || { \
	  if $(IS_ROOT_ON_DEBIAN); then \
	    echo "PostgreSQL is missing: installing it"; apt-get update -qq && $(APT_INSTALL) postgresql; \
	  else \
	    echo "The tests of PostgreSQL's changes need it: install it, with its initdb on the path" >&2; exit 1; \
	  fi; \
	}

lint: setup ## Style, import direction and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright

PYTEST := $(VENV)/bin/python -m pytest --dist loadgroup --no-loadscope-reorder

test: setup hudi ## Lint, unit tests, the simulation, integration in process and a contract of each kind (ARGS="-k name" narrows)
	$(PYTEST) -n 3 --costly none $(ARGS)

test-all: setup browser postgres hudi-spark ## Every test but the long series: also Dagster's daemon and UI, kills, Spark, Hudi, what hangs
	$(PYTEST) -n 3 $(ARGS)

test-fast: setup ## Lint, unit tests and two minutes of the simulation
	$(PYTEST) -n 2 --simulate 120 $(FAST) $(ARGS)

demo: setup ## 336,776 real flights from Kafka into Iceberg, and the proof
	$(VENV)/bin/python examples/flights/demo.py $(ARGS)

demo-mirror: setup ## Two clusters, a mirror that is killed in the middle, and the proof
	$(VENV)/bin/python -m examples.mirror.demo $(ARGS)

demo-hudi: setup hudi-spark ## Flights into Iceberg and Hudi, a run that is killed in Hudi's commit, and the proof
	$(VENV)/bin/python -m examples.hudi.demo $(ARGS)

demo-postgres: setup postgres ## A database's changes into Kafka and Iceberg, while it changes and runs are killed, and the proof
	$(VENV)/bin/python -m examples.postgres_to_iceberg.demo $(ARGS)

dev: setup ## Flights that keep coming, their pipeline and Dagster's UI, until Ctrl-C
	$(VENV)/bin/python examples/flights/dev.py $(ARGS)

bench: setup postgres ## What sinks to Iceberg are to reach, in one table (ARGS="--only freshness" narrows, ARGS=--all adds the rest)
	$(VENV)/bin/python -m bench.run $(ARGS)

faults: setup browser postgres hudi-spark ## The long series: a thousand kills, histories, mutants, with their tables (ARGS="--kills 200" for fewer)
	$(VENV)/bin/python -m pytest tests/e2e/faults -m '' -n 2 $(ARGS)
	$(VENV)/bin/python -m pytest -m faults -n 2 --ignore tests/e2e/faults $(ARGS)
	$(VENV)/bin/python -m tests.mutants

soak: setup ## Half an hour of load, kills and maintenance (ARGS="--minutes 3 --rate 1000" for a smoke test)
	$(VENV)/bin/python -m tests.soak $(ARGS)

side-by-side: setup ## The same faults on iceberg-kafka-connect and on Calve
	$(VENV)/bin/python -m tests.peers $(ARGS)

screenshots: setup browser ## Take the screenshots of the Dagster UI for the documents
	$(VENV)/bin/python -m tests.e2e.dagster.screenshots

clean: ## Remove what the other targets made here (the jars stay in ~/.cache/calve)
	@for state in $$(find .demo .bench -name spark.json 2>/dev/null); do \
	  $(VENV)/bin/python -c 'import pathlib, sys; from calve.spark_jobs import warm; warm.stop(pathlib.Path(sys.argv[1]))' \
	    "$$(dirname "$$state")" || exit 1; done
	@for state in $$(find .demo .bench -name broker.json 2>/dev/null); do \
	  $(VENV)/bin/calve broker stop --dir "$$(dirname "$$state")" || exit 1; done
	rm -rf $(VENV) .demo .bench build *.egg-info .pytest_cache .ruff_cache .hypothesis spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
