# Everything a newcomer, CI and a release need; each target builds what it uses.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
STAMP := $(VENV)/.installed
ROOMS := topologies collectives workloads sim
SHARE ?= 16
SECONDS ?= 0.1
COVERED_SECONDS ?= 0.25
DEAREST ?= 9.5
LEAST ?= 12000
PART ?= 0
PARTS ?= 1
READY ?= ready
FLOORS := topologies=98 collectives=98 workloads=98.3 sim=97.1
DRAWN := $(addprefix tests/,sim/engine sim/faults sim/certify sim/why sim/lower sim/program sim/scenarios topologies/core collectives)
KERNELS := $(addprefix tests/,collectives/core/test_follow.py collectives/core/test_laid.py collectives/test_synthesis.py sim/certify/test_in_turn.py sim/engine sim/faults sim/lower/test_bare.py sim/program sim/timeline sim/why topologies/flows workloads/compression)
COVERED := $(ROOMS:%=--cov=%) --cov-report=
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist worksteal -q
CHROMIUM := $(firstword $(foreach name,chromium chromium-browser google-chrome headless_shell,$(shell command -v $(name))))

COMMON := fifo fabrics flows proofs trees search ordered turns why  # what the commands of README run

unexport PYTHONDONTWRITEBYTECODE  # else each worker rewrites the assertions of every test module anew: 6 s

.PHONY: demo test test-all test-rest costs test-browser ready kernels wheel test-pythons lint coverage test-nojit fresh mutants verify bench bench-commands docs examples docs-site clean

demo: $(STAMP)  ## the main job: all-reduce on an 8x8 torus beside the published curves, results in out/
	$(BIN)/weft compare --topology torus:8x8 --collective all-reduce \
	  --algorithms swing,ring,bucket,recursive-doubling -b 32 -e 512M -f 4 --preset swing-paper \
	  --json out/demo.json --csv out/demo.csv --progress
	$(BIN)/weft paper swing --quick --out out
	@echo "The results are above and in out/. What other first commands need is compiled now:"
	$(BIN)/weft warm $(COMMON)

test: $(READY)  ## the loop: contracts, lint, types, then a sample of every table and all that is cheap, compiled
	$(PYTEST) --sample $(SHARE) --seconds $(SECONDS) --at-least 4000 $(MORE)

test-all: $(READY)  ## every case of every table, the documentation's snippets, the report in a browser
	$(PYTEST) --at-least $(LEAST) $(MORE)
ifneq ($(CHROMIUM),)
	$(BIN)/pytest -q -m "browser and not site"
else
	@echo "NOT RUN: the tests in a real browser, for there is no Chromium here (make test-browser installs one)"
endif

test-rest: $(READY)  ## of the same, what `make coverage` and `make fresh` leave out; PARTS=3 PART=7 runs the seventh third of it
	$(MAKE) test-all READY=$(STAMP) LEAST=$$((7000 / $(PARTS))) \
	  MORE="--rest --sample $(SHARE) --seconds $(COVERED_SECONDS) --dearest $(DEAREST) --part $(PART)/$(PARTS) $(addprefix --drawn-anew=,$(DRAWN))"

test-browser: $(STAMP)  ## the report in a real Chromium, installed where there is none (Debian, root)
	$(if $(CHROMIUM),,apt-get update && apt-get install --yes chromium)
	$(BIN)/pytest -q -m "browser and not site"

ready: $(STAMP)
	$(MAKE) --jobs 2 --output-sync=target lint kernels

kernels: $(STAMP)  ## compile all kernels, which takes a minute of a core once
	$(BIN)/weft warm

wheel: $(STAMP)  ## dist/weft-*.whl with the engine compiled for every Python that is found, tried with each: minutes
	$(BIN)/python -m benchmarks.wheel

test-pythons: $(STAMP)  ## the wheel installed for each supported Python that is found, and a sample of the commands
	$(BIN)/python -m benchmarks.wheel --try

lint: $(STAMP)
	$(BIN)/lint-imports
	$(BIN)/ruff check .
	$(BIN)/mypy $(ROOMS)

coverage: ready test-nojit  ## the sample of `make test` again; fails where a room has fewer of its lines covered than its floor
	$(MAKE) test READY=$(STAMP) SECONDS=$(COVERED_SECONDS) MORE="--dearest $(DEAREST) $(COVERED) --cov-append"
	failed=0; for floor in $(FLOORS); do room=$${floor%=*}; echo "$$room:"; \
	  $(BIN)/coverage report --include="$$room/*" --skip-covered --sort=cover --precision=1 --fail-under=$${floor#*=} \
	  || failed=1; done; exit $$failed

costs: ready  ## measure what the tests cost, by which `make test` chooses: tests/costs.txt
	$(PYTEST) --sample $(SHARE) --write-costs

test-nojit: $(STAMP)  ## what the kernels do, without the compiler, which also shows which of their lines are covered
	NUMBA_DISABLE_JIT=1 $(PYTEST) --sample $(SHARE) --keep-full --at-least 700 -m "not verify and not browser and not site and not compiled" \
	  $(COVERED) $(KERNELS)

fresh: $(STAMP)  ## new random programs, fabrics and plans; SEED=N repeats a run, PARTS as in test-rest; what fails is kept in out/corpus
	@seed=$${SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; echo "make fresh SEED=$$seed draws these again"; \
	$(PYTEST) -m "hypothesis and not verify and not browser and not site" --hypothesis-profile new --hypothesis-seed $$seed \
	  --at-least $$((100 / $(PARTS))) --sample 1 --keep-full --part $(PART)/$(PARTS) $(DRAWN)

mutants: $(STAMP)  ## one change at a time in the core: the tests must notice; SUBJECTS="proof why" runs those alone
	$(BIN)/python -m pip install --quiet --group mutants
	nice -n 19 $(BIN)/python -m benchmarks.mutants $(SUBJECTS)

verify: $(STAMP)  ## the verification book: papers reproduced, tables in docs/
	$(PYTEST) -m "not site" --hypothesis-profile new --timeout 7200
	$(BIN)/python -m benchmarks.papers

bench: $(STAMP)  ## speed and scale, table and plot in docs/
	$(BIN)/python -m benchmarks

bench-commands: $(STAMP)  ## thirty real commands, CPU and memory of each, table in docs/
	$(BIN)/python -m benchmarks.commands

docs: $(STAMP)  ## regenerate the tables that docs/ takes from the registries
	$(BIN)/python -m docs.generate
	$(BIN)/python -m benchmarks.matrix

docs-site: $(STAMP)  ## the documentation as a site in out/site, to be opened as a file; any warning is an error
	$(BIN)/python -m pip install --quiet --group docs
	rm -rf out/site out/site-trees
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --conf-dir docs/site --doctree-dir out/site-trees docs out/site
	$(BIN)/pytest -q tests/docs -m "site$(if $(CHROMIUM),, and not browser)"
	@echo "out/site/index.html is the first page$(if $(CHROMIUM),,; NOT RUN: its tests in a real browser, for there is no Chromium here)"

examples: $(STAMP)  ## write the files of examples/ again, run every command of the helps and the README, list them
	$(BIN)/python -m docs.examples

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable '.[all]' --group test --group lint
	mkdir -p out
	touch $(STAMP)

clean:
	rm -rf $(VENV) out build *.egg-info
