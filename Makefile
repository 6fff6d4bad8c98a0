# make demo: set everything up and compare the paper's four methods (about a minute after installation).
# make test: set everything up, lint, check types, run the tests.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test benchmarks clean

demo: $(READY)
	$(BIN)/orlomo compare digits --methods prsgdm,orlomo,al-sgd,local-ormo-da --seeds 3 \
	    --workers 16 --local-steps 32 --cluster heterogeneous --epochs 80 --out runs/demo

test: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 4 --maxschedchunk 1

benchmarks: $(READY)
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/simulator.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/processes.py
	$(BIN)/python benchmarks/ray_cluster.py
	$(BIN)/python benchmarks/chaos.py

# torch first and pinned: an open range would take another build of it, with gigabytes beside it.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,ray]'
	touch $(READY)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
