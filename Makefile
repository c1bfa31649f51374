# Everything runs in .venv, which is made on first use; nothing else needs to be installed.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; \
	done)
VENV ?= .venv
BIN := $(VENV)/bin
# CI pins what it installs: make test PIP_FLAGS="-c constraints.txt"
PIP_FLAGS ?=
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS)

.DEFAULT_GOAL := help
.PHONY: help demo test check format docs benchmark clean

help:
	@echo "make demo       compare three routing policies on a conversation workload"
	@echo "make test       all tests"
	@echo "make check      linters, types, layers"
	@echo "make docs       the documentation as a site, in out/site; every link checked"
	@echo "make benchmark  speed and memory of the engine"

demo: $(VENV)/.installed
	@mkdir -p out
	$(BIN)/pointsman compare examples/conversation.jsonl.gz --replicas 4 --output out/demo.json

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest

check: $(VENV)/.installed-check
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-check
	$(BIN)/ruff check --fix src tests benchmarks
	$(BIN)/ruff format src tests benchmarks

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open out/site/index.html"

benchmark: $(VENV)/.installed-test
	for file in engine_speed shared_prefix user_policy dict_functions engine_memory command_time fleet_speed plan_speed; do \
		$(BIN)/python benchmarks/$$file.py || exit 1; \
	done

clean:
	rm -rf $(VENV) .venv-* out

$(VENV)/.created:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed; set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml
	$(PIP) --editable .
	@touch $@

# The real engine is a wheel of its own; where there is none its tests are skipped with a word.
$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) --editable '.[test,llamacpp]' || $(PIP) --editable '.[test]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.created pyproject.toml
	$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/.installed-check: $(VENV)/.installed-test
	$(PIP) --editable '.[test,check]'
	@touch $@
