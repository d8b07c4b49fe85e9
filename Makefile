# Each target sets up all it needs: a virtual environment in .venv, at the versions in constraints.txt.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DATA ?= ../shared/data
REVIEW := "a gripping , beautifully shot film , though the plot is a little thin at the end , some jokes \
	fall flat and the hero never finds a reason to be there ."

export HF_HUB_OFFLINE = 1
export TOKENIZERS_PARALLELISM = false
export OMP_WAIT_POLICY = passive
export NO_MKDOCS_2_WARNING = 1

.PHONY: demo viewer test slow check format bench families models docs map notebooks clean

demo: $(READY)  ## explain a sentence with the embedded model
	mkdir -p build
	$(BIN)/exhibit-a explain --html build/report.html --timing $(REVIEW)

viewer: viewer/node_modules  ## build the page's script from its source, and test it (needs Node 20)
	cd viewer && npm run build && npm test

viewer/node_modules: viewer/package-lock.json
	cd viewer && npm install --no-save
	touch $@

test: $(READY)  ## every test but the slow sweeps, on both cores
	$(BIN)/python -m pytest -q -m "not slow" --numprocesses 2 --dist loadgroup

slow: $(READY)  ## the sweeps that take their time
	$(BIN)/python -m pytest -q -m slow --numprocesses 2 --dist loadgroup

check: $(READY)  ## format, lint, types, import direction
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## every method beside the released or naive algorithm, in one process each
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

families: $(READY)  ## the supported families and their parity, into docs
	$(BIN)/python studies/families.py > docs/families.md

models: $(READY)  ## train the embedded models again (DATA=folder with SST-2, MNLI-subset, SNLI-subset)
	$(BIN)/python studies/make_models.py --data $(DATA)

docs: $(READY)  ## the documentation as a site, into site/index.html
	$(BIN)/mkdocs build --quiet --strict

map: $(READY)  ## the architecture page and the tables of methods, from the package itself
	$(BIN)/python docs/making/architecture.py
	$(BIN)/python docs/making/methods.py

notebooks: $(READY)  ## run the tutorials again, and keep what they said
	$(BIN)/python docs/making/notebooks.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache
