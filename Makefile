# `make demo` and `make test` work from a fresh clone; both set up .venv first.
# Tests run in three processes, one more than the two cores of CI, as some wait for others that they start; one thread
# each: threads that wait for each other would only slow them down.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FIGURES := runs/bench
# Modules are kept as bytecode, whatever the surroundings say: tests start dozens of processes that import them.
TESTS := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist worksteal
# The last commit before the redesign of the types and its last one, with which `make house` compares.
BEFORE := 35f18e8
AFTER := d3df1cb

.PHONY: install browser axe demo test test-long test-gpu fuzz fuzz-readers crash soak nightly hashes sbom docs site wheel \
	api bench paper house clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	touch $@

# Rules of accessibility, by axe-core from the npm registry: a tool of development, which nothing here depends on.
AXE ?= 4.10.3
axe: install browser
	mkdir -p build/axe
	cd build/axe && npm pack axe-core@$(AXE) --silent && tar xf axe-core-$(AXE).tgz
	$(BIN)/python tools/axe.py build/axe/package/axe.min.js $(ARGS)

demo: install
	$(BIN)/ifonly demo --out demo

# The tests of the pages need a browser; without the right to install one they are skipped, and say so.
browser:
	@command -v chromium > /dev/null || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && \
		  echo "installing chromium for the tests of the pages" && apt-get update -qq && \
		  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core > /dev/null; } || \
		echo "no chromium here and none can be installed: the tests of the pages will be skipped"

test: install browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(TESTS)

# All parameters, random problems, examples and made-up requests, of which `make test` tries some, and what takes long.
test-long: install browser
	IFONLY_TESTS=long $(TESTS)

# The contracts of solvers and bounds on a GPU, beside the same on the processor; skipped, with the reason, without one.
# Plain pytest, so that it also runs where a machine with a GPU has nothing but torch, pytest and what ifonly needs.
test-gpu:
	OMP_NUM_THREADS=1 PYTHONPATH=src $(or $(wildcard $(BIN)/python),$(PYTHON)) -m pytest -o addopts="-q -rs" tests/search/test_device.py tests/evidence/test_examined_together.py

bench: install
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python benchmarks/solvers.py \
		--cache $(FIGURES) --json $(FIGURES)/solvers.json --page $(FIGURES)/benchmarks.md

# A little of every experiment; `make paper ARGS="reproduce fig2a --quick"` runs what ARGS says instead.
paper: install
ifdef ARGS
	$(BIN)/python -m paper $(ARGS)
else
	$(BIN)/python -m paper reproduce all --quick --out runs/quick --page runs/quick/results.md
	$(BIN)/python -m paper accuracy --sizes 100 --epochs 3 --patients 5 --solve 1 --horizon 6 --max-changes 1
endif

# Random small problems of every kind against enumeration; `make fuzz ARGS="--count 200 --seed 5"` tries some.
fuzz: install
	OMP_NUM_THREADS=1 $(BIN)/python tools/fuzz.py --workers 2 $(ARGS)

# Commands that write, killed with kill -9 before their writes; `make crash ARGS="--moments 50 --only cohort"` some.
crash: install
	OMP_NUM_THREADS=1 $(BIN)/python tools/crash.py $(ARGS)

# Files that are read, mutated: only errors of ours may come of it; `make fuzz-readers ARGS="--count 2000 --seed 5"` some.
fuzz-readers: install
	OMP_NUM_THREADS=1 $(BIN)/python tools/fuzz_readers.py $(ARGS)

# A review server at work for half an hour, with users and faults; `make soak ARGS="--minutes 2 --rate 20"` for a look.
soak: install
	OMP_NUM_THREADS=1 $(BIN)/python tools/soak.py $(ARGS)

# All that takes long, one after the other: some hours. `make -k nightly` goes on where something fails.
nightly: test-long fuzz crash fuzz-readers soak

# The tested versions with hashes of their files, after a change of constraints.txt; asks the index.
hashes: install
	$(BIN)/python tools/supply.py hashes

# What is installed, as a bill of materials (CycloneDX).
sbom: install
	@mkdir -p runs
	$(BIN)/python tools/supply.py sbom > runs/sbom.cdx.json

# Outputs in README and docs, written anew where what they show has changed; PAGES="docs/theory.md" takes some.
docs: install
	OMP_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/python tools/docs.py $(PAGES)

# The documents as a site, in build/site, by tools of its own; a warning is an error.
site: build/site-venv/.installed
	build/site-venv/bin/python tools/site_pages.py

build/site-venv/.installed: site-constraints.txt
	$(PYTHON) -m venv build/site-venv
	build/site-venv/bin/python -m pip install --quiet --disable-pip-version-check -c $< mkdocs-material mkdocstrings-python ruff
	touch $@

# The wheel, built, installed into an empty environment with the pinned versions, and put to work there; EXTRA=all with an
# extra.
wheel:
	rm -rf build/wheel
	$(PYTHON) tools/wheel.py build/wheel --extra "$(EXTRA)"

# The public names and signatures that tests/test_public_api.py holds on to, after a change on purpose.
api: install
	$(BIN)/python tests/public_api.py

# Sizes, options and names of the source tree, before the redesign, after it and now.
# `make house ARGS="--write docs/house.md"` writes the table of the page anew.
house: install
	$(BIN)/python tools/house.py --against $(BEFORE) --against $(AFTER) $(ARGS)

clean:
	rm -rf $(VENV) build demo .mypy_cache .pytest_cache .ruff_cache .hypothesis
