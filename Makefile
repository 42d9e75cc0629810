# One virtual environment for everything. Each target installs what it needs, once.
ifeq ($(OS),Windows_NT)
PYTHON := .venv/Scripts/python.exe
SYSTEM_PYTHON ?= python
else
PYTHON := .venv/bin/python
SYSTEM_PYTHON ?= python3
endif
INSTALL := $(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-docs coverage slow lint bench docs clean

demo: .venv/.plot
	$(PYTHON) examples/demo.py

# Tests run in this many processes, with one thread each: most fits are so small that two threads
# would wait for each other. Tests of one file stay together, because they share fitted models.
JOBS ?= 2
test: export OMP_NUM_THREADS = 1
test: .venv/.test
	$(PYTHON) -m pytest -n $(JOBS) --dist loadfile

test-docs: .venv/.test
	$(PYTHON) -m pytest -m docs

coverage: export OMP_NUM_THREADS = 1
coverage: .venv/.test
	$(PYTHON) -m coverage erase
	$(PYTHON) -m coverage run -m pytest -n $(JOBS) --dist loadfile
	$(PYTHON) -m coverage combine --quiet
	$(PYTHON) -m coverage report --skip-covered --sort=cover

slow: .venv/.test
	$(PYTHON) -m pytest -m slow

lint: .venv/.lint
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(PYTHON) -c "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"

bench: .venv/.bench
	$(PYTHON) benchmarks/run.py

docs: .venv/.docs
	$(PYTHON) -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo docs/_build/html/index.html

clean:
	rm -rf .venv demo docs/_build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

$(PYTHON):
	$(SYSTEM_PYTHON) -m venv .venv

.venv/.%: pyproject.toml constraints.txt | $(PYTHON)
	$(INSTALL) -e ".[$*]"
	@touch $@
