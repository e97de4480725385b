# make run      builds guardian and runs the demonstration in the foreground; no root, no systemd; Ctrl-C ends it
# make test     builds everything and runs all tests
# make sanitize runs the tests of what has threads under the thread sanitizer
# make bench    measures guardian beside a bare C loop, in the same run
# make bench-output  measures log: file beside cat, svlogd and s6-log
# make load     ten thousand services, a million restarts, a thousand crash loops
# SCRATCH=DIR   builds in another folder than .build
# make format   formats the sources; make lint only looks
# make install  [DESTDIR=] [PREFIX=/usr/local]

PREFIX  ?= /usr/local
DESTDIR ?=
SWIFT   ?= swift
CC      ?= cc
SYSCONFDIR ?= /etc

# The arrows between the targets are checked by the build: an import that Package.swift does not declare is an error.
BUILDFLAGS = --explicit-target-dependency-import-check error
SCRATCH ?= .build
BUILD   = $(SWIFT) build $(BUILDFLAGS) --scratch-path $(SCRATCH)
RELEASE = $(SCRATCH)/release
MANUAL  = $(wildcard man/*.[1-8])
BENCH   = .build/bench

.PHONY: all run test build-tests sanitize bench bench-output load format lint lint-format lint-manual install dependencies programs

all: dependencies
	$(BUILD) -c release

run: dependencies
	$(BUILD) -c release --product guardian
	$(BUILD) -c release --product guardianctl
	@exec etc/demonstration/run $(RELEASE)

# Real servers are unpacked below .build where apt has them; where it has not, their tests say that they are not shown.
test: dependencies
	@Tests/Support/fetch-programs .build/programs || echo "no servers to test with; their tests say so"
	$(SWIFT) test $(BUILDFLAGS) --scratch-path $(SCRATCH) $(TESTFLAGS)

build-tests: dependencies
	$(BUILD) --build-tests

# Of the tests of whole programs those in which guardian's own threads have most to do with each other.
sanitize: dependencies
	GUARDIAN_DYNAMIC=1 TSAN_OPTIONS=halt_on_error=1 $(SWIFT) test $(BUILDFLAGS) --sanitize=thread \
	  --scratch-path .build/sanitize --filter 'GuardianRuntimeTests|GuardianLinuxTests|GuardianStoreTests' \
	  --filter 'while its services run|on its way to its exec|an upgrade in place|is taken over when it is back'

bench: dependencies $(BENCH)/floor $(BENCH)/child $(BENCH)/bench
	$(BUILD) -c release --product guardian
	$(BUILD) -c release --product guardianctl
	$(BENCH)/bench $(RELEASE) $(BENCH) $(BENCHFLAGS)

# One service's output to a rotated file, beside cat and, where they are there or unpacked below .build/programs, svlogd and
# s6-log.
bench-output: dependencies $(BENCH)/writer $(BENCH)/output
	$(BUILD) -c release --product guardian
	$(BUILD) -c release --product guardian-logger
	$(BENCH)/output $(RELEASE) $(BENCH)

$(BENCH)/%: Tests/Benchmark/%.c
	@mkdir -p $(BENCH)
	$(CC) -std=gnu17 -O2 -Wall -Wextra -static -o $@ $<

$(BENCH)/bench $(BENCH)/load $(BENCH)/output: $(BENCH)/%: Tests/Benchmark/%.swift Tests/Benchmark/common.swift
	@mkdir -p $(BENCH)
	$(SWIFT)c -O -swift-version 6 -parse-as-library -o $@ $^

# LOADFLAGS: [many|restarts|loops] [--services N] [--restarts N]; all of it takes many minutes.
load: dependencies $(BENCH)/child $(BENCH)/load
	$(BUILD) -c release --product guardian
	$(BUILD) -c release --product guardianctl
	$(BENCH)/load $(RELEASE) $(BENCH) $(LOADFLAGS)

format:
	$(SWIFT) format --in-place --parallel --recursive Package.swift Sources Tests

lint: lint-format lint-manual

lint-format:
	$(SWIFT) format lint --strict --parallel --recursive Package.swift Sources Tests

# mandoc's exit status is no verdict on warnings of every level: any output is a failure.
lint-manual:
	@command -v mandoc >/dev/null || { echo "make lint-manual: there is no mandoc; install it, as by 'apt-get install mandoc'" >&2; exit 1; }
	@found=$$(mandoc -T lint -W warning $(MANUAL) 2>&1); [ -z "$$found" ] || { echo "$$found"; exit 1; }

# Installs what is already built by `make all`, so that `sudo make install` compiles nothing as root.
install:
	@[ -x $(RELEASE)/guardian ] || { echo "make install: nothing is built yet; run 'make all' first" >&2; exit 1; }
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)$(PREFIX)/lib/systemd/user
	install -m 755 $(RELEASE)/guardian $(RELEASE)/guardianctl $(RELEASE)/guardian-sim $(DESTDIR)$(PREFIX)/bin
	install -d $(DESTDIR)$(PREFIX)/libexec/guardian
	install -m 755 $(RELEASE)/guardian-check $(RELEASE)/guardian-logger $(DESTDIR)$(PREFIX)/libexec/guardian
	sed 's|/usr/bin/|$(PREFIX)/bin/|g' units/guardian.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/guardian.service
	sed 's|/usr/bin/|$(PREFIX)/bin/|g' units/user/guardian.service > $(DESTDIR)$(PREFIX)/lib/systemd/user/guardian.service
	chmod 644 $(DESTDIR)$(PREFIX)/lib/systemd/system/guardian.service $(DESTDIR)$(PREFIX)/lib/systemd/user/guardian.service
	install -d $(DESTDIR)$(PREFIX)/share/varlink
	install -m 644 etc/io.guardian.Supervisor.varlink $(DESTDIR)$(PREFIX)/share/varlink
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/catalog
	install -m 644 units/guardian.catalog $(DESTDIR)$(PREFIX)/lib/systemd/catalog
	for page in $(MANUAL); do \
	  section=$(DESTDIR)$(PREFIX)/share/man/man$${page##*.}; \
	  install -d $$section && install -m 644 $$page $$section || exit 1; \
	done
	install -d $(DESTDIR)$(PREFIX)/share/doc/guardian/examples/services
	install -m 644 README.md LICENSE $(DESTDIR)$(PREFIX)/share/doc/guardian
	install -d $(DESTDIR)$(PREFIX)/share/doc/guardian/examples/switches.d
	for example in guardian.yaml $(patsubst etc/%,%,$(wildcard etc/services/*.yaml etc/switches.d/*.yaml)); do \
	  sed '1s|schema=[./]*schema/|schema=$(PREFIX)/share/guardian/schema/|' etc/$$example \
	    > $(DESTDIR)$(PREFIX)/share/doc/guardian/examples/$$example || exit 1; \
	  chmod 644 $(DESTDIR)$(PREFIX)/share/doc/guardian/examples/$$example || exit 1; \
	done
	install -d $(DESTDIR)$(PREFIX)/share/guardian/schema
	install -m 644 etc/schema/service.json etc/schema/host.json etc/schema/switches.json \
	  $(DESTDIR)$(PREFIX)/share/guardian/schema
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions \
	  $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(RELEASE)/guardianctl completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/guardianctl
	$(RELEASE)/guardianctl completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_guardianctl
	$(RELEASE)/guardianctl completion fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/guardianctl.fish
	install -d $(DESTDIR)$(SYSCONFDIR)/guardian/services $(DESTDIR)$(SYSCONFDIR)/guardian/switches.d

# Build libraries: quick when all is there, installed where that is possible, else named.
dependencies:
	@SWIFT='$(SWIFT)' Tests/Support/dependencies

# Redis, nginx and PostgreSQL for the tests, unpacked below .build; nothing is installed and nothing started.
programs:
	Tests/Support/fetch-programs .build/programs
