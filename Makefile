# draftmill. `make help` lists what there is to do.
.DEFAULT_GOAL := help
SHELL := /bin/sh
.SUFFIXES:

# Python 3.11 or 3.12 that the environments are made with; empty looks for one.
PYTHON ?=
# Pinned, so that a lock made anywhere comes out the same.
UV := uv==0.13.9

VENV := .venv/bin
LOCK := .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "Needs Python 3.11 or 3.12 and nothing else. PYTHON=/path/to/python names one; PIP_INDEX_URL and PIP_EXTRA_INDEX_URL are"
	@echo "respected, so the second may name PyTorch's CPU wheels (where pip would take its CUDA build, several GB larger)."

.PHONY: setup
setup: ## Create .venv (Airflow, tests) and .venv-sglang (the demo's GPU host), each from its lock
	@python=$$(demo/find-python.sh $(PYTHON)) && "$$python" demo/environments.py

.PHONY: setup-airflow
setup-airflow:
	@python=$$(demo/find-python.sh $(PYTHON)) && "$$python" demo/environments.py airflow

.PHONY: demo
demo: setup ## Run the whole job on this machine, for real: Airflow, SSH, SGLang on the CPU; again: it resumes
	@PYTHONPATH=include $(VENV)/python -m demo.run start

.PHONY: demo-stop
demo-stop: ## Stop everything the demo started, and check that nothing is left
	@if [ -x $(VENV)/python ]; then PYTHONPATH=include $(VENV)/python -m demo.run stop; else echo "The demo was never set up here."; fi

.PHONY: test
test: setup ## Run the tests: unit, DAGs, integration on a real SSH server and the real SGLang
	$(VENV)/python -m pytest --numprocesses 2 --dist loadfile

.PHONY: test-endurance
test-endurance: setup ## Run the tests that take many minutes each: long outages, restarts, random fault schedules
	$(VENV)/python -m pytest -m endurance

.PHONY: lint
lint: setup-airflow ## Check style, import rules and formatting
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .

.PHONY: types
types: setup-airflow ## Check types
	$(VENV)/mypy

.PHONY: lock
lock: ## Regenerate all requirements*.txt from their .in files; UPGRADE=--upgrade takes the newest versions
	@python=$$(demo/find-python.sh $(PYTHON)) && "$$python" -m venv .venv-lock
	@.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check $(UV)
	$(LOCK) $(UPGRADE) requirements.in -o requirements.txt
	$(LOCK) $(UPGRADE) requirements-dev.in -o requirements-dev.txt
	$(LOCK) $(UPGRADE) --excludes demo/requirements-excludes.txt requirements-sglang-cpu.in -o requirements-sglang-cpu.txt

.PHONY: env
env: ## Write .env for docker compose, with fresh secrets and mode 0600
	@python=$$(demo/find-python.sh $(PYTHON)) && "$$python" scripts/make_env.py

.PHONY: bench
bench: setup ## Run the benchmarks and print their tables
	$(VENV)/python -m benchmarks

.PHONY: clean
clean: demo-stop ## Stop the demo and remove environments, demo state and caches
	rm -rf .venv .venv-sglang .venv-lock .demo .pytest_cache .ruff_cache .mypy_cache .hypothesis
