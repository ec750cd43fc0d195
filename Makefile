# `make help` lists the targets.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
# What Python has compiled it may keep, whatever the environment says: dozens of processes start here.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-cluster test-quick agreement churn properties fuzz fuzz-http fuzz-explore soak model simulate simulate-bugs check security-table imports format proto up down bench chaos chaos-test door scenarios stories clients browser labs labs-mutations compose-test compose-bench clean

help: ## Show this help
	@if [ -t 1 ] && [ -z "$$NO_COLOR" ]; then bold=$$'\033[1m' plain=$$'\033[0m'; fi; \
		grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | \
		awk -F ':.*## ' -v bold="$$bold" -v plain="$$plain" '{printf "  %s%-15s%s%s\n", bold, $$1, plain, $$2}'

setup: .venv/.installed ## Create .venv with all dependencies (repeated only if pyproject.toml has changed)

.venv/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"pinnace needs Python 3.11 or later, this is {sys.version.split()[0]}; try make PYTHON=python3.12")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (a minute, the first time)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: setup ## Start a cluster, kill its leading scheduler three times and a kubelet once, and print the verdict and a timeline
	@$(BIN)/pinnace demo all --html demo.html

# The tests that need clusters, browsers or clients have targets of their own.
PLAIN := -m 'not compose and not chaos and not stories and not clients and not browser and not door'

test: setup ## Run the unit and contract tests, the model and the regressions (real etcd; four minutes; make test WORKERS=2)
	@$(BIN)/pytest $(PLAIN) -n $(or $(WORKERS),4) --dist worksteal \
		tests/unit tests/contract tests/model tests/regression tests/simulation tests/fuzz

test-cluster: setup ## Run the tests of real processes: components, failures, the command line (three minutes)
	@$(BIN)/pytest $(PLAIN) -n $(or $(WORKERS),4) --dist worksteal tests/integration tests/labs

test-quick: setup ## Run the unit tests that start no process and need no etcd, without the slow property and cost suites
	@$(BIN)/pytest -m 'not processes and not slow' --hypothesis-profile quick -n $(or $(WORKERS),2) --dist worksteal tests/unit

agreement: setup ## Compare each plugin of the scheduler with its plain form, on random pairs of pod and node (make agreement PAIRS=100000)
	@PINNACE_PAIRS=$(or $(PAIRS),100000) $(BIN)/pytest -n 2 -k agree tests/unit/scheduler

properties: setup ## Run the property tests with ten times as many examples as in `make test` (make properties EXAMPLES=100)
	@PINNACE_EXAMPLES=$(or $(EXAMPLES),10) $(BIN)/pytest -m hypothesis -n 2 --timeout 1800 tests/unit

churn: setup ## Random churn of nodes and pods against the scheduler's oracle (make churn SEEDS=1000 FIRST=0)
	@PINNACE_SEEDS=$(or $(SEEDS),100) PINNACE_FIRST=$(or $(FIRST),0) $(BIN)/pytest -n 2 tests/unit/scheduler/test_churn.py

fuzz: setup ## Send malformed, huge and hostile messages to an API server (make fuzz MESSAGES=20000 SEED=1)
	@$(BIN)/python -m tests.fuzz --messages $(or $(MESSAGES),20000) --seed $(or $(SEED),1)

fuzz-http: setup ## Send malformed and hostile HTTP requests to a gateway (make fuzz-http REQUESTS=20000 SEED=1)
	@$(BIN)/python -m tests.fuzz.http_run --requests $(or $(REQUESTS),20000) --seed $(or $(SEED),1)

fuzz-explore: setup ## Grow the fuzzer's corpus, guided by coverage (make fuzz-explore FOR=60 SEED=1)
	@$(BIN)/python -m tests.fuzz.explore --seconds $(or $(FOR),60) --seed $(or $(SEED),1)

model: setup ## Check the model of the election, all states within small bounds (larger ones: .venv/bin/python -m tests.model --large)
	@$(BIN)/python -m tests.model

simulate: setup ## Simulate clusters, one for each seed (make simulate SEEDS=10000 FIRST=0; replay: .venv/bin/python -m tests.simulation --seed N -v)
	@$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),1000) --first $(or $(FIRST),0)

simulate-bugs: setup ## Plant bugs in the code, one at a time: each must be found within SEEDS=1000 simulated clusters
	@$(BIN)/python -m tests.simulation.hunt --seeds $(or $(SEEDS),1000)

soak: properties agreement churn ## What CI runs briefly, an hour of it: examples, pairs, seeds and faults; upgrades and rolls; losses of etcd's quorum
	@$(BIN)/python -m tests.simulation --seeds 10000
	@$(BIN)/pinnace chaos run --minutes 10
	@PINNACE_ROLLS=20 PINNACE_QUORUM_LOSS=30 PINNACE_REPEAT=5 PINNACE_EARLIER="0c4dd692 0b32bd98" PINNACE_CUTS=6 $(BIN)/pytest -s \
		tests/integration/test_rolling.py tests/integration/test_rolling_gateways.py tests/integration/test_upgrade.py \
		tests/integration/test_machines.py tests/integration/test_etcd_trouble.py

security-table: setup ## Write the table of permissions into docs/permissions.md
	@$(BIN)/python -m tests.unit.auth.matrix

check: setup ## Check form, types, import rules and generated code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@$(MAKE) --no-print-directory imports
	$(BIN)/python tools/proto.py --check

imports: setup ## Check the import rules
	@rm -rf .imports && mkdir .imports && cp -rL pinnace .imports # lint-imports follows no links
	@cd .imports && PYTHONPATH=. ../$(BIN)/lint-imports ../pyproject.toml --no-cache
	@rm -rf .imports

format: setup ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

proto: setup ## Generate pinnace/api/*_pb2.py and descriptions.json from proto/
	$(BIN)/python tools/proto.py

up: setup ## Start a local cluster in the background (options: make up ARGS="--nodes 100")
	@$(BIN)/pinnace up --detach $(ARGS)

down: setup ## Stop the local cluster and delete it
	@$(BIN)/pinnace down $(ARGS)

bench: setup ## Measure (make bench ROW=failover ARGS="--times 20")
	@$(BIN)/pinnace bench $(or $(ROW),throughput) $(ARGS)

chaos: setup ## Inject faults into a cluster for three minutes, and check the history (make chaos ARGS="--minutes 60 --seed 7")
	@$(BIN)/pinnace chaos run $(ARGS)

stories: setup ## Run the tests of commands that start clusters: up, down, demo and bench
	@$(BIN)/pytest -m stories -n 2 --dist loadgroup tests/integration

chaos-test: setup ## Run the tests that inject faults into etcd and into clusters of real processes
	@$(BIN)/pytest -m chaos tests/integration

door: setup ## Attack a gateway, and measure another user: a table of all attacks (four minutes; make door ATTACKS=openapi)
	@$(BIN)/pytest -s --tb line -m door $(if $(ATTACKS),-k "$(ATTACKS)") tests/robustness/door

scenarios: setup ## Run every scenario of `pinnace chaos`
	@names=$$($(BIN)/python -c 'from pinnace.verification.chaos.perform import SCENARIOS; print(*SCENARIOS)') && \
		for name in $$names; do $(BIN)/pinnace chaos $$name || exit; done

clients: .venv/.clients ## Run kubectl, old and new, and the libraries of Python and JavaScript against a cluster with a gateway (five minutes)
	@$(BIN)/pytest -m clients -n 2 --dist loadscope tests/clients

.venv/.clients: .venv/.installed
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[clients]' || echo "their suites are skipped"
	@touch $@

browser: setup ## Open the timeline in chromium: failovers, decisions, recordings, 5,000 nodes
	@$(BIN)/pytest -m browser tests/browser

labs: setup ## Run the commands of the labs, README.md and docs/, and compare what they print (make labs LABS=labs/01-parts.md ARGS=--update)
	@$(BIN)/pytest -m labs -n 2 --dist loadfile $(or $(LABS),labs tests/labs) $(ARGS)

labs-mutations: setup ## Leave out each step of each lab: a check must fail (make labs-mutations ARGS="--lab 1 --commands")
	@$(BIN)/python -m tests.labs.mutations $(ARGS)

compose-test: setup ## Build docker-compose.yml, kill the leading scheduler's container, check that the next one schedules
	@$(BIN)/python tools/standins.py
	@$(BIN)/pytest -m compose tests/compose

compose-bench: setup ## Measure failover in docker-compose: docker kill of the leading container, 20 times (ARGS="--save FILE")
	@$(BIN)/python tools/standins.py
	@$(BIN)/python -m tests.compose.failover $(ARGS)

clean: ## Delete .venv, if `make setup` created it, and the caches of the tools
	@if [ -e .venv ] && [ ! -e .venv/.installed ]; then \
		echo "error: nothing proves that \`make setup\` made .venv: remove it by hand if it may go" >&2; exit 1; fi
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
