# Two commands do everything on a fresh machine: make demo, make test. Logic lives in scripts/, recipes stay short.
SHELL := /bin/bash
.DEFAULT_GOAL := help
RUN := scripts/run
ARGS ?=
DIR ?=
AUDIT ?=
SINCE ?=

.PHONY: help setup demo test test-fast test-changed test-full corpora matrix check audit format bench docs pictures changelog clean distclean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile
	@python3 tests/lanes.py

setup: ## Make .venv with the locked environment and find or install Java (every target does this first)
	@scripts/setup

demo: ## Run the main job through a real DAG run: SQLite catalog, local files, local Spark
	@scripts/demo

test: ## Run what every change has to pass, a quarter of an hour; more arguments by ARGS="-k insert"
	@$(RUN) pytest -n 2 --dist loadgroup --no-loadscope-reorder $(ARGS)

test-fast:
	@$(RUN) pytest --lane fast tests/unit tests/properties $(ARGS)

test-changed: ## Run what is near to the change since origin/main (SINCE=…), in whatever lane
	@$(RUN) python scripts/changed.py --since "$(SINCE)" $(ARGS)

test-full: ## Run every lane at full size, and say what ran and how long it took
	@$(RUN) python scripts/lanes.py --size full

test-%:
	@$(RUN) python scripts/lanes.py $* $(if $(ARGS),-- $(ARGS))

corpora: ## Send the Parquet, CSV and JSON files of DIR=… through every door and compare them with DuckDB
	@$(RUN) python -m tests.corpora "$(abspath $(DIR))" $(ARGS)

matrix: ## Run chosen tests with other versions of Airflow, Spark, Python and DuckDB; needs the package index
	@$(RUN) python scripts/matrix.py $(ARGS)

check: ## Lock, format, lint, layer contracts, types
	@$(RUN) scripts/check

audit: ## Look the locked dependencies up among known vulnerabilities; needs api.osv.dev, or FILE=advisories.json
ifdef FILE
	@$(RUN) python scripts/audit.py "$(FILE)"
else
	@$(RUN) uv audit --locked $(AUDIT)
	@$(RUN) uv audit --locked --project tests/reference/next $(AUDIT)
endif

format: ## Format the code and apply the safe lint fixes
	@$(RUN) ruff format
	@$(RUN) ruff check --fix

bench: ## Run the benchmarks
	@$(RUN) python scripts/bench.py $(ARGS)

docs: ## Build the documentation into dist/docs
	@$(RUN) mkdocs build --strict

pictures: ## Take the docs' pictures of Airflow's pages anew; needs chromium
	@$(RUN) python scripts/lanes.py browser
	@cp build/pictures/{log,grid,assets,form,duckdb,failed-wrong-columns}-{light,dark}.png docs/images/

changelog: ## Fold changelog.d/ into CHANGELOG.md for the version in __init__.py
	@$(RUN) python scripts/changelog.py --fold

clean: ## Remove caches and build output
	@scripts/clean

distclean: clean ## Remove .venv too
	@rm -rf .venv
