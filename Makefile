# make demo        shows cross-modal retrieval in the terminal (sets up what it needs)
# make test        everything that must hold: style, types, import contract, tests
# make check       what a release must pass beyond: wheel, container, documentation, notebooks,
#                  TypeScript client, tables, file functions without what only POSIX has
# make setup       the development environment alone
# make test-faults hundreds of rounds of killed processes, full disks, flipped bits, writers and readers at once,
#                  thousands of states after power failures, 28,000 interleavings of readers and writers,
#                  thousands of mutated pictures and made-up requests, every compiler and optimization level,
#                  100,000 calls of the compiled kernels with random arguments
# make test-scale  what needs engines: collections on real Milvus and PostgreSQL servers, training and encoding on Ray; in a network of
#                  its own, so that nothing of it can be reached from outside (Linux)
# make coverage    branch coverage, at least 90 %, of make test and make test-scale, after both ran with COVERAGE=1
# make fuzz        a minute of random arguments to the compiled kernels under sanitizers
# make wheel       dist/*.whl and dist/*.tar.gz, each installed without a compiler and used from end to end
# make js          the TypeScript client: generated, type-checked, tested against a service (needs node)
# make docs        the documentation, built and checked
# make pins        constraints.txt and requirements/ from pyproject.toml; ARGS=--upgrade for the newest versions
# make sizes       what each extra adds to an installation, in MB
# make stats       size and shape of the package, and the modules that a fit and a query pass
# make bench       the benchmarks, as JSON lines under results/
.DEFAULT_GOAL := test
.PHONY: setup demo stats check wheel container portable js docs notebooks tables pins sizes test lint tests test-faults test-scale coverage fuzz bench clean

BIN     := .venv/bin
SOURCES := pyproject.toml experiments/pyproject.toml $(wildcard requirements/*.txt) setup.py scripts/setup $(wildcard src/crossbit/kernels/native/*.[ch])
PYTEST  ?=
ARGS    ?=

# Two test processes on two cores: threads inside each would only wait for one another.
tests: export OPENBLAS_NUM_THREADS := 1
tests: export OMP_NUM_THREADS := 1

# One stamp for development; it serves the demonstration as well.
DEV  := .venv/dev.stamp
DEMO := $(if $(wildcard $(DEV)),$(DEV),.venv/demo.stamp)

$(DEV): $(SOURCES)
	@scripts/setup dev 6
	@touch $@

.venv/demo.stamp: $(SOURCES)
	@scripts/setup demo 2
	@touch $@

.venv/scale.stamp: $(SOURCES)
	@scripts/setup scale 8
	@touch $@ $(DEV)

setup: $(DEV)

demo: $(DEMO)
	@$(BIN)/crossbit demo $(ARGS)

test: lint tests

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Measuring coverage is slow. Each run keeps its own data, and `make coverage` combines them.
COVERAGE ?=
COVER    := $(if $(COVERAGE),--cov --cov-report= --cov-fail-under=0)

tests: export COVERAGE_FILE := .coverage-test
tests: $(DEV)
	$(BIN)/python -m pytest --numprocesses=2 --dist=worksteal $(COVER) $(PYTEST)

test-faults: export CROSSBIT_FAULTS := long
test-faults: $(DEV)
	$(BIN)/python -m pytest tests/faults tests/server/test_hostile.py tests/kernels/test_compilers.py -q --ignore=tests/faults/test_interleaving.py $(PYTEST)
	$(BIN)/python -m pytest tests/faults/test_interleaving.py -q --numprocesses=2 --dist=worksteal $(PYTEST)
	$(BIN)/python -m pytest tests/kernels/test_sanitizers.py -q -s $(PYTEST)

fuzz: export CROSSBIT_FUZZ_SECONDS ?= 60
fuzz: $(DEV)
	$(BIN)/python -m pytest tests/kernels/test_sanitizers.py -k entry_points -q -s $(PYTEST)

test-scale: export COVERAGE_FILE := .coverage-scale
test-scale: export OPENBLAS_NUM_THREADS := 1
test-scale: export OMP_NUM_THREADS := 1
test-scale: .venv/scale.stamp
	timeout 1800 $(BIN)/python benchmarks/_standalone.py $(BIN)/python -m pytest tests/engines --durations=10 $(COVER) $(PYTEST)

coverage:
	$(BIN)/python -m coverage combine --keep --data-file=.coverage .coverage-test .coverage-scale
	$(BIN)/python -m coverage report

check: wheel container portable js docs notebooks tables

wheel:
	scripts/wheel

# The steps of the Dockerfile, without a container engine.
container:
	scripts/container-check

js: $(DEV)
	scripts/js-check

docs: export NO_MKDOCS_2_WARNING := 1
docs: $(DEV)
	$(BIN)/mkdocs build --strict --quiet

notebooks: export CROSSBIT_CHECK := 1
notebooks: $(DEV)
	$(BIN)/python -m pytest tests/test_tutorials.py tests/test_notebooks.py -q $(PYTEST)

# File functions as on Windows, without what only POSIX systems have.
portable: $(DEV)
	$(BIN)/python -m pytest -p tests.portable tests/io tests/test_codes.py tests/model tests/data -q $(PYTEST)

# The tables of the documentation must be what the codes in the repository give.
tables: $(DEV)
	$(BIN)/crossbit reproduce verify

pins: $(DEV)
	$(BIN)/python scripts/pins.py $(ARGS)

sizes: $(DEV)
	@$(BIN)/python scripts/sizes.py $(ARGS)

stats: $(DEV)
	@$(BIN)/python scripts/stats.py --walks

bench: $(DEV)
	@mkdir -p results/benchmarks
	@for script in benchmarks/[a-z]*.py; do \
	    echo "$$script"; $(BIN)/python $$script | tee results/benchmarks/$$(basename $$script .py).jsonl; \
	done

clean:
	rm -rf .venv build dist src/*.egg-info .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src -name '*.so' -delete
