# make demo    set up .venv and run the main job
# make check   set up .venv and run lint, types and the tests that compile nothing, in two minutes
# make test    set up .venv and run lint, types and all tests
# make clients set up .venv with SigPy and run the tests of libraries that call this one
# make format  bring the Python code into its form
# make docs    set up .venv and build the documentation in docs/build/html
#
# PYTHON names the interpreter that .venv is made from (3.10 or later), CUDA the CuPy build (12 or 13).

PYTHON ?= python3
CUDA ?= 13

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed-cuda$(CUDA)

.PHONY: demo check test clients plain convolutions mutants instances emulated format docs clean

demo: $(INSTALLED)
	$(BIN)/python -m demo

test: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m pytest -m timed
	$(MAKE) --jobs 2 --output-sync=target emulated plain convolutions mutants instances SHARES=8

# Tests that compile kernels, build documents and packages, or start processes are left to make test.
check: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	HYPOTHESIS_PROFILE=check $(BIN)/python -m pytest -m "not emulator and not timed" \
		$(foreach part,$(LONGER),--ignore tests/test_$(part).py)

LONGER := benchmarks compile dask documentation gallery packaging pictures resources toolkit

clients: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --editable ".[clients]"
	CLIENT_EXAMPLES=500 $(BIN)/python -m pytest tests/test_clients.py

# The parts of the tests, two at a time, in an order that keeps both cores busy to the end: of NumPy's
# BLAS a second thread would wait in a loop. All but plain run on the emulator. Of the mutants and the
# instances, which are many and alike, make test runs an eighth, another one each day.
SHARES := 1
export OPENBLAS_NUM_THREADS := 1
EMULATED := HYPOTHESIS_PROFILE=emulator $(BIN)/python -m pytest -m

plain: $(INSTALLED)
	$(BIN)/python -m pytest -m "not emulator and not timed"

mutants: $(INSTALLED)
	$(EMULATED) emulator --share $(SHARES) tests/test_mutants.py

instances: $(INSTALLED)
	$(EMULATED) "emulator and instance" --share $(SHARES) tests/kernels tests/test_instances.py

convolutions: $(INSTALLED)
	$(EMULATED) emulator tests/test_convolution.py

emulated: $(INSTALLED)
	$(EMULATED) "emulator and not instance" \
		--ignore tests/test_convolution.py --ignore tests/test_mutants.py

format: $(INSTALLED)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(INSTALLED)
	$(BIN)/sphinx-build -q -n -W --keep-going -d docs/build/doctrees docs docs/build/html
	@echo docs/build/html/index.html

clean:
	rm -rf $(VENV) build dist docs/build docs/gallery docs/reference demo/output tests/emulator/build *.egg-info

# An environment that was left half done, or made for the other CuPy build, starts afresh.
$(INSTALLED): setup.cfg pyproject.toml
	test -e $@ || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[cuda$(CUDA),test,demo,docs]"
	touch $@
