# The one front door. Needs Python >= 3.11 with pip and venv, git and make; all else goes into .venv.

PYTHON ?= python3
BIN := .venv/bin
# Written last by an installation; older than what it was made from, it is made again.
READY := .venv/installed
ASYNC_SOURCES = $(shell grep -lrE 'async (with|for)|nursery|CancelScope|fail_after|move_on' \
	gate actors transport ops tests --include='*.py')

# Tests run in two processes, but those that put load on a service: they run by themselves. The mass
# tests go through what the others have covered already; neither are measured.
SIDE_BY_SIDE := -n 2 --dist loadfile
PURE_TESTS := tests/gate tests/actors tests/chaos tests/golden tests/test_architecture.py
LOAD_TESTS := tests/e2e/test_drain.py tests/e2e/test_malformed.py
MASS_TESTS := $(addprefix tests/e2e/test_,$(addsuffix .py,corpus corpus_filters corpus_responses \
	corpus_responses_tunnel corpus_switched corpus_tunnel guardrail held_output hostile_requests \
	judging_order linear_judging over_chat random_faults random_responses random_tunnels \
	recovery_cuts)) $(addprefix tests/chaos/test_,$(addsuffix .py,loop mutants rings scenarios search \
	sockets stack traced)) tests/actors/test_cancellation.py tests/traces tests/test_house.py

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup run demo provider fmt fix format lint lint-ruff lint-format lint-async \
	lint-imports lint-spelling type test test-pure test-mass test-edges test-load cov cov-pure cov-edges cov-core check \
	e2e replay bench corpus-cuts chaos-quick chaos chaos-deep chaos-mutants chaos-coverage audit ci

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile

setup: $(READY)  ## make .venv with everything in it

$(BIN)/python:
	$(PYTHON) -m venv .venv

$(READY): pyproject.toml ops/constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint ops/constraints.txt --editable '.[test]'
	@touch $@

run: $(READY)  ## run the gateway (tidegate.toml, or the embedded demo provider)
	$(BIN)/tidegate serve

demo: $(READY)  ## what a caller gets from a provider that breaks, without and with the gate
	$(BIN)/tidegate demo

provider: $(READY)  ## run the scriptable loopback provider
	$(BIN)/tidegate provider

fmt: fix format  ## put imports and layout in order

fix: $(READY)
	$(BIN)/ruff check --fix-only --quiet .

format: fix
	$(BIN)/ruff format .

lint: lint-ruff lint-format lint-async lint-imports lint-spelling  ## style, layout, trio rules, import contracts, spelling

lint-ruff: $(READY)
	$(BIN)/ruff check .

lint-format: $(READY)
	$(BIN)/ruff format --check .

# ASYNC127 asks for another library than httpx: it is the client this project is built on, and the
# import contracts confine it. ASYNC9 is off by default and must be named again beside it. It takes
# a second for each file, so it looks at those that open or wait for something, two processes at a
# time; ruff has its rules for single calls, everywhere.
lint-async: $(READY)
	@echo $(ASYNC_SOURCES) | xargs -n 12 -P 2 $(BIN)/flake8-async --disable=ASYNC127,ASYNC9

lint-imports: $(READY)
	$(BIN)/lint-imports --no-logo

lint-spelling: $(READY)
	$(BIN)/codespell

type: $(READY)  ## check all types
	$(BIN)/mypy

test: test-pure test-edges test-load  ## run the tests

test-pure: $(READY)
	$(BIN)/pytest $(SIDE_BY_SIDE) $(PURE_TESTS) $(MASS_TESTS)

test-mass: $(READY)
	$(BIN)/pytest $(SIDE_BY_SIDE) $(MASS_TESTS)

test-edges: test-pure
	$(BIN)/pytest $(SIDE_BY_SIDE) tests $(addprefix --ignore=,$(PURE_TESTS) $(MASS_TESTS) $(LOAD_TESTS))

test-load: $(READY)
	$(BIN)/pytest $(LOAD_TESTS)

cov: test-mass test-load cov-pure cov-edges cov-core  ## tests with branch coverage: 90 % over all, 100 % of gate and actors

cov-pure: $(READY)
	$(BIN)/pytest --cov --cov-fail-under=0 $(SIDE_BY_SIDE) $(addprefix --ignore=,$(MASS_TESTS)) $(PURE_TESTS)

cov-edges: cov-pure
	$(BIN)/pytest --cov --cov-append $(SIDE_BY_SIDE) tests \
		$(addprefix --ignore=,$(PURE_TESTS) $(MASS_TESTS) $(LOAD_TESTS))

cov-core: cov-edges
	$(BIN)/coverage report --include='gate/*,actors/*' --fail-under=100

check: lint type cov  ## lint, type and test with coverage

e2e: $(READY)  ## against a real llama.cpp server
	ops/e2e/llamacpp.sh

replay: $(READY)  ## replay the captured traces: the same bytes and decisions
	$(BIN)/tidegate replay tests/traces/captured.trace.gz

bench: $(READY)  ## what the gateway costs beside a direct connection and two byte copiers
	$(BIN)/tidegate bench

chaos-quick: $(READY)  ## a third of all single faults at the steps of every scenario, under one schedule
	$(BIN)/tidegate chaos --corpus tests/chaos/corpus.txt

chaos: $(READY)  ## all of them, half under two more schedules, behind each cancel one more, and rings 2 and 3
	$(BIN)/tidegate chaos --search full --corpus tests/chaos/corpus.txt

chaos-deep: $(READY)  ## thirty-two schedules, and pairs under eight
	$(BIN)/tidegate chaos --search deep --corpus tests/chaos/corpus.txt

chaos-mutants: $(READY)  ## faults planted in copies of the program: each has to be found
	$(BIN)/python -m tests.chaos.mutate

chaos-coverage: $(READY)  ## which await sites of the actors are hit: all by a cancel, 95 % by a raise
	$(BIN)/tidegate chaos --schedule fifo --sites

corpus-cuts: $(READY)  ## every recorded stream, cut everywhere; ten thousand random faults
	$(BIN)/pytest $(wildcard tests/e2e/test_corpus*.py) tests/e2e/test_recovery_cuts.py \
		$(wildcard tests/e2e/test_random*.py) tests/e2e/test_guardrail.py tests/e2e/test_held_output.py \
		tests/actors/test_cancellation.py --corpus=full

audit: $(READY)  ## known vulnerabilities in what is installed
	$(BIN)/pip-audit --skip-editable

ci: check chaos-quick  ## what has to pass before a change lands
