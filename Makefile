# make demo        shows cross-modal retrieval in the terminal (sets up what it needs)
# make test        everything that must hold: style, types, import contract, tests with coverage
# make setup       the development environment alone
# make test-faults hundreds of rounds of killed processes, full disks, flipped bits, writers and readers at once,
#                  thousands of mutated pictures and made-up requests
# make test-scale  what needs engines: collections on a real Milvus server, training and encoding on Ray; in a network of
#                  its own, so that nothing of it can be reached from outside (Linux)
# make stats       size and shape of the package, and the modules that a fit and a query pass
# make bench       the benchmarks, as JSON lines under results/
.DEFAULT_GOAL := test
.PHONY: setup demo stats test lint tests test-faults test-scale bench clean

BIN     := .venv/bin
SOURCES := pyproject.toml experiments/pyproject.toml constraints.txt setup.py scripts/setup $(wildcard src/crossbit/kernels/native/*.[ch])
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
	@scripts/setup dev-scale 8
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

tests: $(DEV)
	$(BIN)/python -m pytest --numprocesses=2 --dist=worksteal --cov --cov-report=term $(PYTEST)

test-faults: export CROSSBIT_FAULTS := long
test-faults: $(DEV)
	$(BIN)/python -m pytest tests/faults tests/server/test_hostile.py tests/kernels/test_compilers.py -q $(PYTEST)

test-scale: export OPENBLAS_NUM_THREADS := 1
test-scale: export OMP_NUM_THREADS := 1
test-scale: .venv/scale.stamp
	timeout 1800 $(BIN)/python benchmarks/_standalone.py $(BIN)/python -m pytest tests/engines --durations=10 $(PYTEST)

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
