# Every target does its own set-up first, in .venv; the first call takes minutes, later ones a moment.
PYTHON ?= python3
RUN = .venv/bin/python -m
WORKERS ?= auto
unexport PYTHONDONTWRITEBYTECODE  # tests start many processes, each of which would compile every module again
no_python = '$(PYTHON)' not found: install Python 3.11 or newer, or name one with make PYTHON=...
set_up = command -v "$(PYTHON)" >/dev/null || { echo "$(no_python)"; exit 1; }; "$(PYTHON)" .ci/setup.py
peers_only = .venv-peers/bin/python -m pytest -m "peers and not gpu"

.PHONY: help setup demo test slow peers browser slurm lint format types check pages docs clean

help:  ## what this file can do
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

setup:  ## make .venv with everything in it (each target below calls this itself)
	@$(set_up)

demo:  ## the quick study end to end, then its report; sets up what running needs, and nothing for tests
	@$(set_up) --without-dev
	@$(RUN) levelfield demo

test: setup  ## the ordinary tests
	@$(RUN) pytest -n $(WORKERS) --dist worksteal

slow: setup  ## the slow tests too
	@$(RUN) pytest -n $(WORKERS) --dist worksteal -m "not browser" --timeout 1200

peers:  ## the tests beside other packages, such as transformers, Ray and lm-eval, in an environment of their own
	@$(set_up) --peers
	@$(peers_only) -n $(WORKERS) --dist worksteal || { echo "What failed is tried once more, by itself:"; $(peers_only) --lf --lfnf none; }

browser: setup  ## the tests that open pages in an installed Chromium or Chrome; skipped elsewhere
	@$(RUN) pytest -m browser tests/report tests/longcontext tests/test_website.py

slurm: setup  ## the tests on a real Slurm of two nodes on this machine, as root with Debian's slurm-wlm; skipped elsewhere
	@$(RUN) pytest -m slow tests/engine/test_real_slurm.py

lint: setup  ## style, as CI checks it
	@$(RUN) ruff check
	@$(RUN) ruff format --check

format: setup  ## mend what ruff can mend
	@$(RUN) ruff check --fix
	@$(RUN) ruff format

types: setup  ## static types
	@$(RUN) pyright

check: test lint types  ## what CI checks with the tools of .venv

pages: setup  ## the report that is kept in docs, from the rows that are kept in results
	@$(RUN) levelfield report demo --runs-dir results --report-dir build
	@sed 's|href="rows.csv"|href="../../results/demo-minutes/rows.csv"|g' build/demo-minutes/report.html > docs/reports/demo.html

docs:  ## the documentation as a site, build/site/index.html; needs nothing of .venv
	@"$(PYTHON)" docs/scripts/website.py

clean:  ## remove the environment and the caches; runs and data stay
	rm -rf .venv .venv-peers .venv-docs .setup.lock .pytest_cache .ruff_cache .hypothesis
