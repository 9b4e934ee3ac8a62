# The two commands to know: `make demo` and `make test`. Every target that needs it makes `.venv` first.
PYTHON ?= python3
BIN := .venv/bin
# The demo needs fewer packages than the development; both live in the one `.venv`, the second contains the first.
DEMO_READY := .venv/ready-demo
DEV_READY := .venv/ready-dev
DEPLOY_READY := .venv/ready-deploy
SOURCES := requirements/uv.txt requirements/version.py pyproject.toml agents/pyproject.toml CHANGELOG.md

# Set in many containers; then each process of the demo and of the tests would compile all of Django again.
unexport PYTHONDONTWRITEBYTECODE

# As pip does: where a company's proxy re-signs TLS connections, only the system knows its certificate.
export UV_SYSTEM_CERTS ?= true

.DEFAULT_GOAL := install
.PHONY: install site demo test test-long check lint types docs sentences screenshots lock browser access bench soak faults packages dist bundle images clean

install: $(DEV_READY)
.venv: $(DEV_READY)

define install_from
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Drydock needs Python 3.11 or newer; set PYTHON=.")'
	@test -x $(BIN)/uv || { $(PYTHON) -m venv --clear .venv && $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt; }
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes $(1)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e . -e agents
	@touch $@
endef

$(DEV_READY): requirements/dev.txt $(SOURCES)
	$(call install_from,requirements/dev.txt)

# Where everything is installed already, the smaller set must not take things away again.
$(DEMO_READY): requirements/demo.txt $(SOURCES)
	@if [ -e $(DEV_READY) ]; then $(MAKE) --no-print-directory $(DEV_READY) && touch $@; fi
	$(if $(wildcard $(DEV_READY)),,$(call install_from,requirements/demo.txt))

# What checks the Ansible role and the manifests of Kubernetes.
$(DEPLOY_READY): requirements/deploy.txt | $(DEV_READY)
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv/deploy
	@$(BIN)/uv pip sync --quiet --python .venv/deploy/bin/python --require-hashes requirements/deploy.txt
	@touch $@

# The documentation as the product serves it at /docs/. Its build fails at a link that leads nowhere.
SITE := fleet/site/docs/index.html
site: $(DEMO_READY) $(SITE)
$(SITE): mkdocs.yml CHANGELOG.md fleet/management/site_hooks.py $(shell find docs -type f)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# `exec`, so that a signal or a kill reaches the demo itself.
demo: $(DEMO_READY) $(SITE)
	@exec $(BIN)/python manage.py demo

# Every promise, in minutes; of what searches for long a small share.
test: $(DEV_READY) $(SITE)
	@exec $(BIN)/python -m pytest -n auto --dist loadfile -m "not long" $(ARGS)

# What needs minutes: a longer share of every search, packages, programs of others, hundreds of races, rounds of kills.
test-long: $(DEV_READY) $(DEPLOY_READY) $(SITE)
	@exec $(BIN)/python -m pytest -n auto --dist loadfile -m "long or hypothesis" --hypothesis-profile=whole $(ARGS)

check: $(DEV_READY) $(SITE) lint types docs
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null || $(BIN)/python -m pytest --collect-only -qq
	@$(BIN)/python requirements/lock.py --check
	@$(BIN)/uv pip check --quiet --python $(BIN)/python
	@$(BIN)/python manage.py with_servers -- sh -c '$(BIN)/python manage.py check --fail-level WARNING && $(BIN)/python manage.py makemigrations --check --dry-run'

lint: $(DEV_READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python -m tests.wording.plain_words

types: $(DEV_READY)
	@$(BIN)/mypy
	@$(BIN)/mypy --config-file agents/pyproject.toml

docs: $(DEV_READY)
	@$(BIN)/python manage.py print_docs --check

# Every label and sentence as it is now, in tests/wording/sentences.txt. Read the diff before you commit it.
sentences: $(DEV_READY)
	@RENEW_SENTENCES=1 $(BIN)/python -m pytest -q tests/wording $(ARGS)

lock: $(DEV_READY)
	@$(BIN)/python requirements/lock.py $(ARGS)

# Who may call what, as it is now: docs/dev/access says what each route answers each caller. Read the diff before you commit it.
# NEW=1 calls those routes only that no table has yet.
access: $(DEV_READY)
	@NEW=$(NEW) $(BIN)/python -m pytest -q -n 2 tests/access/write.py tests/gateway/write_table.py $(ARGS)
	@$(BIN)/python -m pytest -q tests/access/write_page.py

# The pictures of the documentation, in docs/screenshots, as the pages are now. View them before you commit them.
screenshots: $(DEV_READY) $(SITE)
	@SCREENSHOTS=docs/screenshots $(BIN)/python -m pytest -q -n 2 tests/browser/test_pictures.py $(ARGS)

# Playwright drives Debian's own chromium; this is the one thing that the package index does not have.
SUDO := $(if $(filter-out 0,$(shell id -u)),sudo)
browser:
	@command -v chromium >/dev/null || { $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; }

bench: $(DEV_READY)
	@exec $(BIN)/python -m bench $(ARGS)

# A million steps of the merging compared with its plain model, a hundred thousand steps of what time changes, hundreds of
# races and of kills of the sender process, and thousands of examples of what has properties; MODEL_SEED and DUE_SEED tell other stories.
soak: $(DEV_READY)
	@MODEL_STEPS=$${MODEL_STEPS:-1000000} $(BIN)/python -m pytest tests/events/test_the_merging_agrees_with_a_plain_model.py $(ARGS)
	@DUE_STEPS=$${DUE_STEPS:-100000} $(BIN)/python -m pytest tests/events/test_reconciliation_misses_no_due_row.py $(ARGS)
	@RACE_ROUNDS=$${RACE_ROUNDS:-500} $(BIN)/python -m pytest tests/approvals/test_races.py tests/approvals/test_one_live_approval_per_event.py $(ARGS)
	@MESSAGE_KILLS=$${MESSAGE_KILLS:-200} $(BIN)/python -m pytest -m fault tests/messages/test_what_is_sent_is_written_down.py $(ARGS)
	@$(BIN)/python -m pytest -n auto --dist loadfile -m hypothesis --hypothesis-profile=soak $(ARGS)

# Rounds of kill -9 with the whole ring running; ROUNDS=1 SEED=n plays round n again. RESULTS=file records the outcomes,
# and the next run with it plays the other rounds only; MINUTES=m plays no further round after that time.
faults: $(DEV_READY)
	@ROUNDS=$${ROUNDS:-1000} $(BIN)/python -m pytest -s -q -m faults tests/faults $(ARGS)

# Packages of the agent for Debian and Red Hat, which the backend of `make dist` and `make bundle` serves.
# ARCHITECTURES="x86_64 aarch64": for these machines, by default like the one that builds.
packages: $(DEV_READY)
	@$(BIN)/python requirements/packages.py fleet/site/agent $(ARCHITECTURES)

# Both distributions with their hashes, for servers and machines: docs/admin/install.md says how they are installed.
dist: $(DEV_READY) $(SITE) packages
	@$(BIN)/python requirements/dist.py

# The same with every library, for servers and machines without a package index, in dist/bundle and as a tar file.
# PYTHONS="3.10 3.12": the versions of Python that they run, by default the one of `.venv`. "windows-3.12" adds the agent
# for that Python on Windows.
bundle: $(DEV_READY) $(SITE) packages
	@$(BIN)/python requirements/bundle.py dist/bundle $(PYTHONS)

# Images of server and agent in dist/images, without a daemon: on Debian or Ubuntu as root, with buildah and mmdebstrap.
# KUBECTL=FILE: one more of the agent with this kubectl, for nodes of Kubernetes.
images: $(DEV_READY) $(SITE) packages
	@$(BIN)/python requirements/images.py dist/images $(KUBECTL)

clean:
	rm -rf .venv dist fleet/site .mypy_cache .ruff_cache .pytest_cache .hypothesis staticfiles test-artifacts
