# Each target sets up all it needs: a virtual environment in .venv, at the versions in constraints.txt.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PLAIN := build/plain
PEERS := build/peers
RELEASE := build/release
READY := $(VENV)/.ready
RUNS := $(VENV)/.runs
DATA ?= ../shared/data
WORK ?= build/studies
KEPT := $(addprefix tests/results/test_,files.py store.py result.py over_units.py resealed.py types.py) \
	$(addprefix tests/corpus/test_,damage.py resume.py run_folder.py)
REVIEW := "a gripping , beautifully shot film , though the plot is a little thin at the end , some jokes \
	fall flat and the hero never finds a reason to be there ."

# Benchmarks are read for names that are no longer there, not for the types that others leave open.
LEFT_OPEN := $(addprefix --disable-error-code=,arg-type assignment call-arg misc union-attr var-annotated)

COG := $(BIN)/cog -I docs/making -I studies -I tests -p "from cogs import *"

export HF_HUB_OFFLINE = 1
export TOKENIZERS_PARALLELISM = false
export OMP_WAIT_POLICY = passive
export NO_MKDOCS_2_WARNING = 1
# What was compiled is kept: else every worker and every command that a test starts does it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo viewer test slow cover plain release runners check format fuzz trust bench peers families models claims studies docs map pages notebooks clean

demo: $(RUNS)  ## explain a sentence with the embedded model
	mkdir -p build
	$(BIN)/exhibit-a explain --html build/report.html --timing --probes 8 $(REVIEW)

viewer: viewer/node_modules  ## build the page's script from its source, and test it (needs Node 20)
	cd viewer && npm run build && npm test

viewer/node_modules: viewer/package-lock.json
	cd viewer && npm install --no-save
	touch $@

test: $(READY)  ## every test but the slow sweeps, on both cores
	$(BIN)/python -m pytest -q -m "not slow" --numprocesses 2 --dist worksteal

slow: $(READY)  ## the sweeps that take their time
	$(BIN)/python -m pytest -q -m slow --numprocesses 2 --dist worksteal

cover: $(READY)  ## every branch of the code that keeps results is taken by a test
	$(BIN)/python -m pytest -q -m "not slow" --numprocesses 2 --dist worksteal --cov --cov-report term $(KEPT)

fuzz: $(READY)  ## attack files, folders, command lines, calls, requests and texts (SEED=, ATTEMPTS=)
	PYTHONPATH=tests $(BIN)/python -m support.fuzz --seed $(or $(SEED),0) --attempts $(or $(ATTEMPTS),200)

trust: $(READY)  ## attack everything at length; `make pages` writes docs/trust.md
	PYTHONPATH=tests $(BIN)/python docs/making/trust.py --try
	PYTHONPATH=tests $(BIN)/python docs/making/dtypes.py

plain:  ## the wheel alone in a new environment: what needs no extra works, the rest names its extra
	rm -rf $(PLAIN)
	$(PYTHON) -m venv $(PLAIN)
	$(PLAIN)/bin/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $(PLAIN)/wheel .
	$(PLAIN)/bin/pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt \
	  $(PLAIN)/wheel/*.whl
	$(PLAIN)/bin/python tests/plain/run.py

release:  ## wheel and source archive into dist/, checked, installed alone, and the demo run from each
	rm -rf dist $(RELEASE)
	$(PYTHON) -m venv $(RELEASE)/tools
	$(RELEASE)/tools/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt build twine
	$(RELEASE)/tools/bin/python -m build --outdir dist .
	$(RELEASE)/tools/bin/twine check --strict dist/*
	for file in dist/*; do \
	  rm -rf $(RELEASE)/new && $(PYTHON) -m venv $(RELEASE)/new && \
	  $(RELEASE)/new/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt "$$file[viz]" && \
	  (cd $(RELEASE) && new/bin/exhibit-a explain --html report.html $(REVIEW)) && \
	  (cd $(RELEASE) && new/bin/python ../../tests/plain/paper.py ../../docs/for-authors.md) || exit 1; \
	done

# Tried on Linux with pipx 1.18 and uv 0.13. Both fetch torch: UV_FIND_LINKS and PIP_FIND_LINKS name a folder with wheels.
runners:  ## the wheel in dist/ by `pipx run` and by `uvx`, without installing it
	test -e $(RELEASE)/tools || $(PYTHON) -m venv $(RELEASE)/tools
	$(RELEASE)/tools/bin/pip install --quiet --disable-pip-version-check pipx uv
	$(RELEASE)/tools/bin/pipx run --pip-args "--constraint $(CURDIR)/constraints.txt" --spec dist/*.whl \
	  exhibit-a explain --no-html $(REVIEW)
	$(RELEASE)/tools/bin/uvx --constraints constraints.txt --from dist/*.whl \
	  exhibit-a explain --no-html $(REVIEW)

check: $(READY)  ## format, lint, types, import direction, pages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	MYPYPATH=src $(BIN)/mypy --config-file= --ignore-missing-imports --follow-imports=silent $(LEFT_OPEN) \
	  --cache-dir=.mypy_cache/benchmarks benchmarks/*.py
	$(BIN)/python -m pytest -q tests/test_architecture.py
	$(COG) --check README.md docs/*.md

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## every method beside the released or naive algorithm, in one process each
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

# Peers need other versions than constraints.txt has. inseq asks for an old typeguard and runs with a new one.
peers:  ## other libraries beside ours, in an environment of their own, into docs/data/peers.json
	rm -rf $(PEERS)
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check --editable ".[peers]"
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check --no-deps inseq treescope
	$(PEERS)/bin/python benchmarks/peers.py --out docs/data/peers.json

families: $(READY)  ## the supported families and their parity, into docs
	$(BIN)/python studies/families.py > docs/families.md

models: $(READY)  ## make the embedded models again (DATA=folder with SST-2, MNLI-subset, SNLI-subset, wikitext-2, multi30k)
	$(BIN)/python studies/make_models.py --data $(DATA)
	$(BIN)/python studies/make_stories.py --data $(DATA)
	$(BIN)/python studies/translation.py --data $(DATA)/multi30k --work build/models transformer additive

claims: $(READY)  ## measure the cheap claims again and compare with docs/claims.md (DATA=folder of data sets)
	$(BIN)/python studies/claims.py again --data $(DATA)

studies: $(READY)  ## measure every claim at full size, for hours; stop it and start it again (DATA=, WORK=)
	$(BIN)/python studies/claims.py stored
	$(BIN)/python studies/collapse.py --data $(DATA)
	$(BIN)/python studies/identifiability.py --base sentiment --data $(DATA) --texts 20
	$(BIN)/python studies/mixing.py --base sentiment --data $(DATA)/SST-2 --maps identity linear mlp
	$(BIN)/pip install --quiet --disable-pip-version-check gguf accelerate
	$(BIN)/python studies/make_models.py --bases $(WORK)/models
	$(BIN)/python studies/identifiability.py --base $(WORK)/models/all-mpnet-base-v2 --data $(DATA) --texts 8 --longest 512 --parts length --figures docs/figures
	$(BIN)/python studies/mixing.py --base $(WORK)/models/all-mpnet-base-v2 --data $(DATA)/SST-2 --sentences 40 --probes 8 --texts 300 --epochs 5 --maps identity linear mlp --figures docs/figures
	$(BIN)/python studies/causal.py --base $(WORK)/models/SmolLM2-135M-Instruct --data $(DATA) --texts 8 --figures docs/figures
	$(BIN)/python studies/edges.py --data $(DATA) --sentences 200
	$(BIN)/python studies/gold.py --data $(DATA) --sentences 400
	$(BIN)/python studies/gold.py --data $(DATA) --texts movies --sentences 100 --figures docs/figures
	$(BIN)/python studies/explanation.py --data $(DATA)/SST-2 --out $(WORK)/explanation
	$(BIN)/python studies/hiding.py --data $(DATA) --work $(WORK)/hiding
	$(BIN)/python studies/hiding.py --base $(WORK)/models/SmolLM2-135M-Instruct --work $(WORK)/hiding
	for part in train heads curves effectiveness pairs trees triggers figures; do \
	  $(BIN)/python studies/tasks.py $$part --data $(DATA) --work $(WORK)/tasks --figures docs/figures || exit 1; \
	done

docs: $(READY)  ## the documentation as a site, into site/index.html
	$(BIN)/mkdocs build --quiet --strict

map: $(READY)  ## draw the rooms of the package and the imports between them
	$(BIN)/python docs/making/architecture.py

pages: map  ## write the tables and numbers of all pages, from docs/data, the registry and the package
	$(COG) -r README.md docs/*.md

notebooks: $(READY)  ## run the tutorials again, and keep what they said
	$(BIN)/python docs/making/notebooks.py

# The package and what `explain` can use; tests, documentation and Ray only come with the other targets.
$(RUNS): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[compare]"
	touch $@

$(READY): $(RUNS)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache
