# Two commands do everything on a fresh machine: make demo, make test. Logic lives in scripts/, recipes stay short.
SHELL := /bin/bash
.DEFAULT_GOAL := help
RUN := scripts/run
ARGS ?=
AUDIT ?=

.PHONY: help setup demo test test-fast test-full install-test iceberg matrix check audit format bench docs changelog clean distclean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: ## Make .venv with the locked environment and find or install Java (every target does this first)
	@scripts/setup

demo: ## Run the main job through a real DAG run: SQLite catalog, local files, local Spark
	@scripts/demo

test: ## Run every test at CI sizes, those of Airflow also with the oldest one; more arguments by ARGS="-k insert"
	@$(RUN) pytest -n 2 --dist worksteal $(ARGS)
	$(if $(ARGS),,@$(RUN) pytest -n 2 --dist worksteal --spark=connect --one-in=8 tests/spark)
	$(if $(ARGS),,@$(RUN) python scripts/matrix.py --oldest)

test-fast: ## Run the unit and property tests only
	@$(RUN) pytest tests/unit tests/properties $(ARGS)

test-full: ## Run every test at full sizes, those with Iceberg, and the installed wheel
	@$(RUN) pytest -n 2 --dist worksteal --size=full $(ARGS)
	@$(RUN) pytest -n 2 --dist worksteal --size=full --spark=connect tests/spark
	@$(MAKE) iceberg ARGS=
	@$(MAKE) install-test

install-test: ## Install the wheel as documented into an empty environment and run the quick start under airflow standalone
	@$(RUN) python -u scripts/install_test.py

iceberg: ## Have Iceberg read our files, in an environment of its own; needs Maven Central
	@$(RUN) python scripts/spark_peers.py python -m pytest --confcutdir=tests/iceberg tests/iceberg $(ARGS)

matrix: ## Run chosen tests with other versions of Airflow, Spark, Python and DuckDB; needs the package index
	@$(RUN) python scripts/matrix.py $(ARGS)

check: ## Lock, format, lint, layer contracts, types
	@$(RUN) scripts/check

audit: ## Look the locked dependencies up among known vulnerabilities; needs api.osv.dev, or AUDIT="--service-url …"
	@$(RUN) uv audit --locked $(AUDIT)
	@$(RUN) uv audit --locked --project tests/reference/next $(AUDIT)

format: ## Format the code and apply the safe lint fixes
	@$(RUN) ruff format
	@$(RUN) ruff check --fix

bench: ## Run the benchmarks
	@scripts/bench

docs: ## Build the documentation into dist/docs
	@$(RUN) mkdocs build --strict

changelog: ## Fold changelog.d/ into CHANGELOG.md for the version in __init__.py
	@$(RUN) python scripts/changelog.py --fold

clean: ## Remove caches and build output
	@scripts/clean

distclean: clean ## Remove .venv too
	@rm -rf .venv
