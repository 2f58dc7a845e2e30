# One command for each thing, the same for people, pre-commit and CI. Each makes the environment it needs in .venv.
# PYTHON=/path/to/python3 chooses the interpreter; ARGS="-k name" goes to pytest, which then runs in one process.

BIN := .venv/bin
READY := .venv/.ready
# Many tests wait more than they work. What must not run beside another says so: tests/turns.py.
WORKERS := 3

.PHONY: help demo onboard test check bench soak clean

help:
	@echo 'make demo    the strongest sandbox that works here, shown at work (no model, no key)'
	@echo 'make onboard finds a key or a model on this machine, tries it, and sets Bubbles up'
	@echo 'make test    the tests; what this machine lacks is skipped with its reason. ARGS="-k name -s" chooses'
	@echo 'make check   lint, format, types, import contracts'
	@echo 'make bench   what sandboxes, gate and assistant cost, measured here'
	@echo 'make soak    the tests that take minutes'
	@echo 'make clean   removes what these commands made'

demo: $(READY)
	@$(BIN)/bubbles demo

onboard: $(READY)
	@$(BIN)/bubbles onboard $(ARGS)

test: $(READY)
	@$(BIN)/python -m pytest $(or $(ARGS),-n $(WORKERS) --dist worksteal)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(READY)
	@$(BIN)/python tests/benchmarks/run.py

soak: $(READY)
	@$(BIN)/python -m pytest -m 'slow or soak' --timeout=3600 $(ARGS)

clean:
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find bubbles sandbox_backends tests -name __pycache__ -type d -prune -exec rm -rf {} +

# A name on the PATH proves nothing (version switchers put one there for every version), so each is run.
$(READY): pyproject.toml
	@set -eu; \
	if ! $(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    found=''; bare=''; \
	    for python in $${PYTHON:-python3.13 python3.12 python3.11 python3}; do \
	        $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	        if $$python -c 'import ensurepip, venv' 2>/dev/null; then found=$$python; break; fi; \
	        bare=$$python; \
	    done; \
	    if [ -z "$$found" ] && [ -n "$$bare" ]; then \
	        echo "$$bare cannot make an environment (on Debian and Ubuntu: apt-get install python3-venv)." >&2; exit 1; \
	    elif [ -z "$$found" ]; then \
	        echo 'Bubbles needs Python 3.11 or newer; install it, or name it: make PYTHON=/path/to/python3.' >&2; exit 1; \
	    fi; \
	    $$found -m venv --clear .venv; \
	fi; \
	echo "Setting up .venv (a minute or two the first time)" >&2; \
	$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[dev]'; \
	touch $(READY)
