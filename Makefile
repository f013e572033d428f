# What a user, a developer and CI type. `make help` lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
JOBS ?= $(shell nproc)
# Small, and one of each kind; `scripts/fetch_tokenizers.py --list` names all that tests know.
TOKENIZERS ?= qwen3 deepseek_v4 mistral_v3 mistral_tekken

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(VENV)/.run: requirements.lock pyproject.toml scripts/setup.sh
	scripts/setup.sh run

$(VENV)/.dev: requirements-dev.lock pyproject.toml scripts/setup.sh
	scripts/setup.sh dev

.PHONY: demo
demo: $(VENV)/.run ## two simulated workers, the router and three answers; ARGS=--once ends after them
	$(BIN)/sglr demo $(ARGS)

.PHONY: setup
setup: $(VENV)/.dev ## the environment for developing, from the lock file

.PHONY: test
test: $(VENV)/.dev ## the test suite with its coverage gate
	-$(MAKE) --no-print-directory tokenizers
	$(BIN)/pytest -n $(JOBS) --dist loadfile --cov --cov-report=term-missing:skip-covered $(ARGS)

.PHONY: tokenizers
tokenizers: $(VENV)/.dev ## real models' tokenizers for the tests (kept in .cache; without them tests skip)
	$(BIN)/python scripts/fetch_tokenizers.py --only $(TOKENIZERS)

.PHONY: check
check: $(VENV)/.dev ## formatters, linters, types, import contracts, stubs and locks
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/python scripts/gen_proto.py --check
	$(BIN)/python scripts/gen_crd.py --check
	$(BIN)/python scripts/gen_chart.py --check
	$(BIN)/python scripts/gen_reference.py --check
	$(BIN)/python scripts/gen_api_docs.py --check
	$(BIN)/python scripts/lock.py --check

.PHONY: test-kube
test-kube: $(VENV)/.dev ## the operator on a real API server and etcd (two minutes, and nine more once to build it)
	scripts/kube/test.sh $(ARGS)

.PHONY: chaos
chaos: $(VENV)/.dev ## ten minutes of killed, hanging and lying workers under load
	$(BIN)/python bench/chaos.py $(ARGS)

.PHONY: bench
bench: $(VENV)/.dev ## this router beside the peer gateway (gcc, libnghttp2-dev; half an hour)
	$(BIN)/python bench/compare.py $(ARGS)

.PHONY: interop
interop: $(VENV)/.dev ## answers compared with a real SGLang on this CPU (2.6 GB, about ten minutes)
	scripts/interop/run.sh $(ARGS)

.PHONY: parity
parity: $(VENV)/.dev ## prompts compared with SGLang's own front end, token by token
	PYTHONPATH=scripts $(BIN)/python -m parity.compare $(ARGS)

.PHONY: e2e e2e-kind
e2e: $(VENV)/.dev ## the chart on a throw-away cluster of this machine (root; ten minutes, and four more once to build it)
	e2e/run.sh $(ARGS)

e2e-kind: $(VENV)/.dev ## the same on kind, where Docker runs
	e2e/run.sh --kind $(ARGS)

.PHONY: lock
lock: $(VENV)/.dev ## write both lock files anew from pyproject.toml
	$(BIN)/python scripts/lock.py

.PHONY: format
format: $(VENV)/.dev ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
