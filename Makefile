# Each target makes the environment it needs. `make` alone prints this list.

PYTHON ?= python3
RUN := .venv/bin
INSTALLED := .venv/.installed
DONE := .venv/.dev
SITE := .venv-docs
SCHEMAS := .venv/share/fedaudit/schemas

.PHONY: help audit docs example-flower example-lora frameworks side-by-side test nightly worlds faults mutants kills browser check bench bench-peers paper claims equivalence mechanisms nulls strength dist fuzz dev clean
help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1  /p' $(MAKEFILE_LIST) | expand -t 10

audit: $(INSTALLED)  ## a whole audit on images that ship with the package: runs/quickstart/report.pdf
	$(RUN)/fedaudit run configs/quickstart.yaml --out runs/quickstart || test $$? -ne 2  # 1 and 3 are verdicts

# One thread a process: two test processes with two threads each would fight over two cores. A file's tests run in one
# process, so that what they share is made once. Tests start hundreds of processes: modules are compiled for the first
# of them alone, whatever the environment says, and kept outside of the tree.
COMPILED = PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/.venv/compiled
TESTS = $(COMPILED) OMP_NUM_THREADS=1 $(RUN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test: $(DONE)  ## the tests: six minutes on two cores
	$(TESTS) -m "not nightly"

nightly: $(DONE)  ## all tests, with statistics, kills and whole products: half an hour
	$(TESTS)

worlds: $(DONE)  ## what may be said of federations, networks and data of every kind; a part is drawn by SEED=20261128, or the date
	$(if $(SEED),SEED=$(SEED)) $(TESTS) tests/worlds

faults: $(DONE)  ## a fault at every write of a run, of four kinds; some tens of minutes
	FAULT_STRIDE=1 $(TESTS) tests/audit/phases/test_faults.py

mutants: $(DONE)  ## some hundred faults put into the code one at a time, and which test notices each: ONLY="its name" WHOLE=1
	$(RUN)/python -m tests.mutants $(if $(ONLY),--only "$(ONLY)") $(if $(WHOLE),--whole)

kills: export OMP_NUM_THREADS = 1
kills: $(DONE)  ## whole audits killed at random moments, over eight configs: COUNT=100
	$(RUN)/python -m tests.audit.phases.kills --count $(or $(COUNT),100)

check: $(DONE)  ## ruff, formatting and types
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

# npm brings Chromium, a driver and axe-core; nothing of them is part of the project.
browser: $(DONE)  ## the HTML report, and the site where it is built, in a headless Chromium, with axe-core, from npm: SCREENSHOTS=folder
	npm install --silent --no-fund --no-audit --prefix .browser axe-core@4 puppeteer-core@24 @sparticuz/chromium@147
	$(RUN)/python -m pytest -rs tests/reports/test_browser.py tests/test_site.py

# The pages come from our code, the site from mkdocs, whose environment has nothing of ours.
docs: $(INSTALLED) $(SITE)/.installed  ## the documentation as a site, whose notebooks are run; some minutes: site/index.html
	$(RUN)/python -m release.pages build/pages
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --quiet --clean

bench: $(INSTALLED)  ## speed, as ratios to a plain loop, other frameworks, the hardware's limit and dp-accounting; ATTACKS=1: and of attacks
	$(RUN)/python -m benchmarks.speed.training
	$(RUN)/python -m benchmarks.speed.aggregators
	$(RUN)/python -m benchmarks.speed.noise_planner
	$(if $(ATTACKS),$(RUN)/python -m benchmarks.speed.attacks)

# BlazeFL runs on Python 3.12 and newer: PYTHON=python3.12
PEERS := pfl fedlab flower jax_steps $(shell $(PYTHON) -c "import sys; print('blazefl' * (sys.version_info >= (3, 12)))")
bench-peers: $(PEERS:%=.peers/%/.installed)  ## environments of the frameworks that bench compares with, one each

paper: $(INSTALLED)  ## a published table: TABLE=rebafl-1 ROUNDS=200 SEEDS=7,8 COLUMN=fmnist-m20; TABLE=freezefl-times CHARGE=probe
ifeq ($(TABLE),freezefl-times)
	$(RUN)/python -m fedaudit.audit.claims.round_lengths $(if $(CHARGE),--charge $(CHARGE))
else
	$(RUN)/python -m benchmarks.paper_tables.main $(or $(TABLE),--list) $(if $(ROUNDS),--rounds $(ROUNDS)) \
	  $(if $(SEEDS),--seeds $(SEEDS)) $(if $(COLUMN),--column $(COLUMN)) $(if $(ROWS),--rows $(ROWS)) \
	  $(foreach entry,$(DATA),--data $(entry)) $(if $(DOWNLOAD),--download) $(if $(KEEP),--keep) \
	  $(if $(CLAIMS),--claims)
endif

equivalence: $(DONE)  ## methods beside public implementations and second programs, batch by batch; FAULTS=1: which faults they notice
	$(RUN)/python -m tests.fl.equivalence.$(if $(FAULTS),faults,table)

claims: $(INSTALLED)  ## published claims of privacy, re-scored: runs/claims.pdf
	$(RUN)/fedaudit dp claims configs/claims/*.yaml --out runs/claims.pdf

mechanisms: $(INSTALLED)  ## random mechanisms against certified lower values: COUNT=300 SEED=1
	$(RUN)/python -m benchmarks.privacy.mechanisms --count $(or $(COUNT),300) --seed $(or $(SEED),1)

strength: $(INSTALLED)  ## how strong attacks are where leaks are certain, beside what is asked: ROWS=M1,M5
	$(RUN)/python -m benchmarks.strength $(if $(ROWS),--rows $(ROWS))

nulls: $(INSTALLED)  ## audits of federations with nothing to find: COUNT=200
	$(RUN)/python -m benchmarks.null_audits.audits --count $(or $(COUNT),200) --out runs/nulls

example-flower: $(INSTALLED)  ## a federation that really runs in Flower, recorded and audited: runs/flower-example
	FEDAUDIT=$(CURDIR)/$(RUN)/fedaudit examples/flower/run.sh

example-lora: $(INSTALLED)  ## adapters of a language model, trained in Flower, recorded and audited: runs/flower-lora
	FEDAUDIT=$(CURDIR)/$(RUN)/fedaudit examples/flower-lora/run.sh

# Frameworks pin other versions of what fedaudit needs, so that each has an environment of its own.
frameworks: export FLOWER = $(CURDIR)/.frameworks/flower
frameworks: export NVFLARE = $(CURDIR)/.frameworks/nvflare
frameworks: $(DONE)  ## federations that really run in Flower and NVFlare, recorded and imported; some minutes
	$(RUN)/python -m pytest -rs tests/audit/importing/test_real_runs.py

side-by-side: $(INSTALLED)  ## the same federation simulated and recorded from Flower, findings side by side
	FEDAUDIT=$(CURDIR)/$(RUN)/fedaudit PYTHON=$(CURDIR)/$(RUN)/python examples/flower/side_by_side.sh

dev: $(DONE)  ## the environment with the tools to work on it
	@echo "activate it: . .venv/bin/activate"

dist: $(DONE)  ## wheel, sdist and bill of materials; the same sources give the same bytes
	$(RUN)/python -m build --no-isolation --outdir dist .
	$(RUN)/python release/sbom.py > dist/sbom.cdx.json

fuzz: $(DONE)  ## changed folders, inboxes, configs, claims, reviewers' files and data: MINUTES=10 FOLDERS=2000 INBOXES=600
	$(RUN)/python -m tests.fuzz --minutes $(or $(MINUTES),60) --folders $(or $(FOLDERS),2000) --inboxes $(or $(INBOXES),600) --configs $(or $(CONFIGS),600)

clean:  ## remove the environments, the site and caches; run folders stay
	rm -rf .venv .venv-docs .peers site build .mypy_cache .ruff_cache *.egg-info

# A stamp is newer than what decides the environment, so repeated targets start at once. An audit needs what users need
# alone. The schemas are others' work: pip checks the digests of the archives that hold them, the tests those of the files.
# What is installed is what the lock files say, by digest: pip refuses any other file. Torch alone is taken by version,
# since indexes serve different builds of it, and what its build for CUDA needs besides comes with it.
BY_DIGEST = $(RUN)/python -m pip install --quiet --require-hashes --no-deps -r

$(INSTALLED): pyproject.toml constraints.txt requirements.lock
	test -x $(RUN)/python || $(PYTHON) -m venv .venv
	$(BY_DIGEST) requirements.lock
	$(RUN)/python -m pip install --quiet -c constraints.txt torch torchvision
	$(RUN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	PYTHONDONTWRITEBYTECODE= $(RUN)/python -m compileall -q fedaudit fl attacks audit reports  # a boxed command cannot write here
	@touch $@

$(DONE): $(INSTALLED) requirements-dev.lock release/schemas.txt
	$(BY_DIGEST) requirements-dev.lock
	rm -rf $(SCHEMAS) && mkdir -p $(SCHEMAS)
	$(RUN)/python -m pip download --quiet --no-deps -r release/schemas.txt -d $(SCHEMAS)
	cd $(SCHEMAS) && tar -xzf pytest-*.tar.gz --transform 's|.*/||' --wildcards '*/junit-10.xsd'
	cd $(SCHEMAS) && tar -xzf sarif_pydantic-*.tar.gz --transform 's|.*/||' --wildcards '*/sarif-schema-2.1.0.json'
	rm $(SCHEMAS)/*.tar.gz
	-$(COMPILED) $(RUN)/python -m pytest --collect-only > /dev/null  # else each test process would compile it all first
	@touch $@

.peers/%/.installed: benchmarks/speed/peers/%.txt constraints.txt
	test -x .peers/$*/bin/python || $(PYTHON) -m venv .peers/$*
	.peers/$*/bin/python -m pip install --quiet -c constraints.txt torch torchvision
	.peers/$*/bin/python -m pip install --quiet --require-hashes --no-deps -r $<
	@touch $@

$(SITE)/.installed: requirements-docs.lock
	test -x $(SITE)/bin/python || $(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --require-hashes --no-deps -r requirements-docs.lock
	@touch $@
