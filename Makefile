# make demo: set everything up and see it: worker processes, the paper's four methods, their pages (under 90 s).
# make test: set everything up, lint, check types, run the tests.
# make docs: set everything up, build the documentation site: build/docs/index.html.
# make chaos: everything that may happen to a run, made to happen: at most 30 minutes.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test docs chaos chromium benchmarks clean

# The real thing first, then the simulated one, then the page of each.
demo: $(READY)
	@echo "1 of 3: four worker processes, one of them 4 times slower: synchronous, then OrLoMo"
	@$(BIN)/orlomo compare examples/uneven_processes.py:task --engine processes --methods prsgdm,orlomo --workers 4 \
	    --pace 1,1,1,4 --local-steps 8 --learning-rate 0.1 --epochs 20 --out runs/demo/processes
	@echo; echo "2 of 3: the paper's four methods, simulated on 16 workers, 4 of them 2 times slower"
	@$(BIN)/orlomo compare digits --methods prsgdm,orlomo,al-sgd,local-ormo-da --seeds 3 --workers 16 \
	    --local-steps 32 --cluster heterogeneous --epochs 60 --out runs/demo/simulated
	@echo; echo "3 of 3: a page for each"
	@echo; $(BIN)/orlomo report runs/demo/processes -o runs/demo/processes.html
	@echo; $(BIN)/orlomo report runs/demo/simulated -o runs/demo/simulated.html

test: $(READY) chromium
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 3 --maxschedchunk 1 --durations 12

docs: $(READY)
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs build/docs
	@echo "the site: build/docs/index.html"

# For the tests of pages, which are skipped where there is none and none can be installed.
chromium:
	@command -v chromium > /dev/null && command -v chromedriver > /dev/null \
	    || { command -v apt-get > /dev/null && [ "$$(id -u)" = 0 ] && echo "installing chromium for the tests of pages" \
	         && { apt-get update && apt-get install -y --no-install-recommends chromium chromium-driver; } > /dev/null 2>&1; } \
	    || echo "no chromium and chromedriver here: the tests of pages will be skipped"

chaos: $(READY)
	$(BIN)/python benchmarks/chaos.py

benchmarks: $(READY)
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/simulator.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/report.py
	$(BIN)/python benchmarks/processes.py
	$(BIN)/python benchmarks/own_loop.py
	$(BIN)/python benchmarks/ray_cluster.py

# torch first and pinned: an open range would take another build of it, with gigabytes beside it.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,ray,tensorboard,parquet,huggingface,lightning,completion,docs]'
	touch $(READY)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
