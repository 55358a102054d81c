# `make` alone lists what there is. A target is listed when a ## comment says what it does; a setting, when it is assigned with ?= and has one.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

GO ?= go
PACKAGES ?= ./...## the packages that test, microbench, fuzz and cover look at
TESTFLAGS ?=## more flags for go test, such as -run=TestScenarios -v
FUZZTIME ?= 10s## how long each fuzz target runs
RANDOMTIME ?= 30s## how long random orchestrations are made up
TIME ?= 10m## for how long `make chaos` injects faults
SEED ?= 0## the seed that `make random` or `make sim` plays again, and with which `make chaos` chooses faults
N ?= 1## how many seeds `make sim` plays, from SEED on
SEEDS ?= 1000## how many fixed seeds `make sim` plays, when none is given
SIMTIME ?= 2m## how long it goes on with fresh ones then
W ?=## which workloads `make bench` measures, such as W1,W2 or W.s; all, unless one is named
DATABASE ?= postgres## what `make bench` measures with: postgres, sqlite, or the address of a database
RUNS ?= 1## how often `make bench` and `make overhead` measure each
BENCHFLAGS ?=## more flags for make bench, such as -size=full, -time=5m or -profile=profiles
BENCH ?= .## which benchmarks `make microbench` runs, as a regular expression
BENCHTIME ?= 1s## how long each of them runs, or how often (100x)

# The tools have a module of their own, so that the product's go.mod does not list what they need.
TOOL := $(GO) tool -modfile=internal/tools/go.mod

# The race detector needs a C compiler.
CC_FOUND := $(shell command -v "$$($(GO) env CC)" 2>/dev/null)
# A program that the detector watches waits a second before it ends, which is a long time for so many. Races inside dependencies are suppressed.
export GORACE ?= atexit_sleep_ms=100 suppressions=$(CURDIR)/internal/racetest/suppressions.txt
# SQLite, as it is translated to Go, is left out of the detector: it would take most of the time, and races in it are not ours to find.
RACE := $(if $(CC_FOUND),-race -gcflags=modernc.org/...=-race=false)
# All that runs without the detector is built as the shipped binary is, without cgo and without paths of this directory. Otherwise Go would
# compile everything once more for the binary and the images, and once more for each other clone.
PLAIN := env CGO_ENABLED=0
quick lint binary: export CGO_ENABLED := 0
quick lint test binary: export GOFLAGS := $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath
# Compilers and tests are short-lived and have small heaps: collected less often, they need a sixth less CPU time. A heap of two gigabytes
# is collected as usual. The servers that the tests of a package run hold up to one, so a limit of one makes them collect all the time.
quick lint test binary: export GOGC ?= 400
quick lint test binary: export GOMEMLIMIT ?= 2GiB

# What is thinned out or left out under the detector (see internal/racetest) is run once more without it, in full.
FULL_STORES := InMemory|MayFail|GivingUp|Plans|TooLarge|ReaderIsAStore|LongHistory|Conformance/commit|Conformance/./large|Conformance/./anywhere
FULL_OTHERS := MailModel|RandomOrchestrations|ThousandsOfDelayed|Conformance$$/many_publish|Conformance$$/what_waits

# The tests bring SQLite along, start PostgreSQL servers of their own where its binaries are found, and use the server at
# RONDO_TEST_DATABASE_URL where that is set. What is not there is skipped, and `make databases` says so.
POSTGRES := $(firstword $(wildcard $(RONDO_TEST_PG_BIN)/initdb) $(shell command -v initdb 2>/dev/null) $(wildcard /usr/lib/postgresql/*/bin/initdb))

.PHONY: help
help: ## list the targets and settings
	@echo "make <target>, where target is one of:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "settings, as in make fuzz FUZZTIME=1m:"
	@awk -F ' *[?]= *|## ' '/^[A-Z]+ [?]=.*## / { printf "  %-12s %s%s\n", $$1, $$3, $$2 == "" ? "" : " (" $$2 ")" }' $(MAKEFILE_LIST)

.PHONY: dev
dev: ## run examples/orders with everything it needs, and show what becomes of one order; Ctrl-C ends it, and what runs goes on the next time
	@GO='$(GO)' bash internal/tools/build.sh bin/rondo ./cmd/rondo
	@exec bin/rondo dev --demo

# Tests make many small files, which some disks are slow at. Where the file system in memory has 6 GiB left, they go there, as does what
# the Go command builds for a test. PostgreSQL's user removes its own directory, so it may write beside it.
MEMORY := $(shell [ "$$(df -Pm /dev/shm 2>/dev/null | awk 'NR == 2 { print $$4 }')" -ge 6144 ] 2>/dev/null && echo /dev/shm)
IN_MEMORY = TMPDIR=$$(mktemp -d $(or $(MEMORY),$${TMPDIR:-/tmp})/rondo-XXXXXX); export TMPDIR; chmod 1777 "$$TMPDIR"; \
	trap 'rm -rf "$$TMPDIR" || :' EXIT

# The tests of these packages run whole systems or servers, many at once, and wait most of the time: they have a go test of their own.
MODULE := github.com/rondo-run/rondo
SYSTEMS := $(MODULE)/integration
SERVERS := $(MODULE)/(internal/broker/nats|services/jobs)
# The race detector multiplies the CPU time of these tests by four and more. In `make test` it watches those in which the most different
# goroutines meet, and `make test-all` runs all of them with it.
WATCHED := Conformance$$|EverythingTwice|Shutdown|PartitionsMove|PartitionCount|RollingRestart|Checker|LostBroker|StepsMove|SecondCommit
WATCHED := $(WATCHED)|BesideOthers|OneBusyInstance|SessionsStay|InAnyOrder|Reaches|HeartbeatTimeout|StreamIsMadeAgain|Unregistered
WATCHED := $(WATCHED)|ConcurrentLocks|RequestsAtOnce|StartedAtOnce|ManyAsk|TwoProcesses|BrokerIsAway|LosesAnswers|GivesBack
WATCHED := $(WATCHED)|Direct|Bundle|Order|Receive|Handover|Connection|Loses|Due|GoesOn|Repaired|Watermark|Results
# The tests of these packages start servers, databases or processes, or wait for time to pass: `make quick` leaves them out.
SLOW := integration(/.*)?|cmd/rondo|internal/broker/(nats|brokersim|embedded)|internal/(natstest|pgfault|pgtest|tidy)|pkg/(app|client)|pkg/history/(cockroach|sqlite)|services/(jobs|worker)|examples/polyglot
# `make test` runs these without the race detector: no goroutines meet in them, or, as in the stores, those of the services do, which it runs
# with them in others.
ALONE := bench|cmd/rondo|examples/.*|integration/(chaos|cluster|internal|simulation)(/.*)?|internal/(check|columns|pgtest|process|query|schedule|tidy|timeline|x/.*)|pkg/(events|round|history/.*)
# The modules beside the main one whose tests belong to `make test`.
BESIDE := integration/dashboards integration/openapi integration/helm internal/tools

# It runs the other targets' commands, and prints how they went: see internal/tools/gate.
.PHONY: gate
gate:
	@$(GO) -C internal/tools build -o ../../bin/gate ./gate

BASE ?= main## the branch that make quick and make flaky compare with
.PHONY: quick
quick: gate ## check formats, rules, documents and golden files, and run the unit and scenario tests of packages that differ from BASE
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not formatted (run make fmt):"; echo "$$unformatted"; exit 1; fi
	@$(GO) vet ./...
	@$(IN_MEMORY); $(GO) test -short -vet=off ./internal/tidy
	@$(IN_MEMORY); $(GO) test -short -vet=off -run 'InDocuments|Golden|HelpFits' ./cmd/rondo
	@packages=$$(bin/gate changed -base '$(BASE)' -module .); [ -z "$$packages" ] || \
	packages=$$($(GO) list $$packages | grep -vxE '$(MODULE)/($(SLOW))' || :); \
	$(IN_MEMORY); [ -z "$$packages" ] || $(GO) test -short -vet=off $(TESTFLAGS) $$packages

.PHONY: hooks
hooks: ## have git run `make quick` before each commit
	git config core.hooksPath internal/tools/hooks

# The groups of packages run at the same time, because most tests wait most of the time. All of them share one PostgreSQL server, and the command
# line that some of them run.
# The time limit is for a machine that is ten times slower: within the 90 minutes of ci.yml, go test still prints where everything stands.
.PHONY: test
test: databases gate ## run tests of each kind at a small size, with the race detector where goroutines meet
	@test -n "$(RACE)" || echo "RACE DETECTOR: off, because there is no C compiler here; install gcc to have it"
	@echo "TESTS: a line for each package, when it has ended; the first ones come when they are compiled"
	@$(IN_MEMORY); packages=$$($(GO) list $(PACKAGES)); \
	alone=$$(grep -xE '$(MODULE)/($(ALONE))' <<<"$$packages" || :); systems=$$(grep -xE '$(SYSTEMS)|$(SERVERS)' <<<"$$packages" || :); \
	others=$$(grep -vxE '$(SYSTEMS)|$(SERVERS)|$(MODULE)/($(ALONE))' <<<"$$packages" || :); \
	commands=(); common='-short -vet=off -timeout 80m $(TESTFLAGS)'; race='$(if $(RACE),,$(PLAIN)) $(GO) test $(RACE)'; \
	add() { [ -z "$$2" ] || commands+=("$$1 $$common $$(tr '\n' ' ' <<<"$$2")"); }; \
	add "$$race -p 2 -run $(WATCHED)" "$$systems"; add "$(PLAIN) $(GO) test -p 2 -skip $(WATCHED)" "$$systems"; \
	add "$$race -p 2" "$$others"; add "$(PLAIN) $(GO) test -p 2" "$$alone"; \
	[ '$(PACKAGES)' != ./... ] || for module in $(BESIDE); do commands+=("$(PLAIN) $(GO) -C $$module test $$common ./..."); done; \
	$(PLAIN) $(GO) build -o "$$TMPDIR" ./cmd/rondo ./internal/pgtest/share; \
	RONDO_TEST_BINARY="$$TMPDIR/rondo" "$$TMPDIR/share" bin/gate test "$${commands[@]}"

# It stops at no failure. Its table is in bin/deep.md as well.
FROM ?=## the step with which make deep begins, such as FROM=chaos; the first, unless one is named
DEEP := tidy lint startup bench-once bench-tiny costs fuzz random sim mutants chaos otlp dashboards openapi images-test helm test-all large
.PHONY: deep
deep: gate ## run everything in full size, also after a failure, and print how each step went; FROM=STEP goes on there
	@RONDO_TEST_LEDGER=1 bin/gate steps -from '$(FROM)' -table bin/deep.md $(foreach step,$(DEEP),'$(step)=$(MAKE) $(step) SEEDS=2000')

.PHONY: flaky
flaky: gate ## run the tests that differ from BASE 30 times, with the race detector, with one processor and four, beside other work
	@$(IN_MEMORY); bin/gate flaky -base '$(BASE)' -race "$(RACE)"

.PHONY: test-all
test-all: databases ## run all tests in full, with the race detector, and without it those that are too much for it
	@test -n "$(RACE)" || echo "RACE DETECTOR: off, because there is no C compiler here; install gcc to have it"
	@$(IN_MEMORY); failed=; packages=$$($(GO) list $(PACKAGES)); full=$(filter ./...,$(if $(RACE),$(PACKAGES))); \
	others=$$(grep -vx '$(SYSTEMS)' <<<"$$packages") && { $(GO) test $(RACE) -vet=off -p 4 -timeout 40m $(TESTFLAGS) $$others || failed=yes; }; \
	set -m; { [ -z "$$full" ] || $(MAKE) full; } >"$$TMPDIR/full.log" 2>&1 & \
	set +m; trap 'kill -- -$$! 2>/dev/null || :; rm -rf "$$TMPDIR" || :' EXIT; \
	systems=$$(grep -x '$(SYSTEMS)' <<<"$$packages") && { $(GO) test $(RACE) -vet=off -timeout 40m $(TESTFLAGS) $$systems || failed=yes; }; \
	wait $$! || failed=yes; cat "$$TMPDIR/full.log"; [ -z "$$failed" ]

.PHONY: full
full:
	@echo "WITHOUT THE RACE DETECTOR, for what takes too long with it:"
	@failed=; \
	$(GO) test -vet=off $(TESTFLAGS) -run '$(FULL_STORES)' ./pkg/history/cockroach ./pkg/history/sqlite ./internal/query || failed=yes; \
	$(GO) test -vet=off $(TESTFLAGS) -run '$(FULL_OTHERS)' ./pkg/round ./internal/broker/nats || failed=yes; \
	[ -z "$$failed" ]

.PHONY: large
large: ## run what is too much for the race detector: three NATS servers, thousands of instances and timers, every crash window, a minute of overload
	$(GO) test -count=1 -run 'Cluster|Leader' ./internal/broker/nats
	$(GO) test -count=1 -v -run 'Timers|Twice|LostBroker|RollingRestart' ./integration | grep -v -e '^=== ' -e 'INFO' -e '^    --- PASS'
	RONDO_TEST_LARGE=1 $(GO) test -count=1 -timeout 2h -run 'CrashWindows|KilledInWindows' ./integration
	RONDO_TEST_LARGE=1 $(GO) test -count=1 -timeout 60m -v -run 'Overload' ./integration | grep -v -e '^=== ' -e 'INFO'

# It prints as it goes on, which go test shows only with -v. What the flags of the test are is said in integration/chaos/chaos_test.go.
CHAOSFLAGS ?=## more flags for make chaos, such as -chaos.leases=default
.PHONY: chaos
chaos: ## run a whole system as processes of its own, break parts of it for TIME while it works, and prove that nothing was lost
	$(GO) test -count=1 -timeout 0 -v -run '^TestChaos$$' ./integration/chaos -chaos.time $(TIME) -chaos.seed $(SEED) $(CHAOSFLAGS)

.PHONY: overhead
overhead: RUNS := 7
overhead: ## compare throughput without traces, with one in a hundred, with all, and without metrics; nothing else should run
	$(GO) test -count=1 -timeout 30m -v -run '^TestOverhead$$' ./integration -overhead.runs $(RUNS) -overhead.size 15000 | grep -v '^=== '

# It has a module of its own, so that the product does not depend on a collector.
.PHONY: otlp
otlp: ## run the orders example through two processes against a real OTLP receiver
	$(GO) -C integration/otlp test $(RACE) -count=1 -timeout 5m $(TESTFLAGS) ./...

# It has a module of its own, so that the product does not depend on Prometheus' engine.
.PHONY: dashboards
dashboards: ## have Prometheus' engine evaluate all dashboards and alerts, on what rondo dev --demo tells and on what is made up
	$(GO) -C integration/dashboards test -count=1 -timeout 5m $(TESTFLAGS) ./...

# It has a module of its own, so that the product does not depend on what reads OpenAPI documents.
.PHONY: openapi
openapi: ## have the server of queues give every answer that its OpenAPI document names, and compare each with the document
	$(GO) -C integration/openapi test -count=1 -timeout 5m $(TESTFLAGS) ./...

# The command that builds images has a module of its own, so that the product does not depend on what talks to registries.
IMAGEFLAGS ?=## more flags for make images, such as --tar or --push=ghcr.io/me/rondo
.PHONY: images
images: ## build the container images of rondo into bin/images, without a Docker engine
	@$(GO) -C deploy/images run . --output ../../bin/images $(IMAGEFLAGS)

.PHONY: images-test
images-test: ## build images, look at all that is in them, run what is in them, and build them again elsewhere to see that they are the same
	$(GO) -C deploy/images test -count=1 -timeout 10m $(TESTFLAGS) ./...

# It has a module of its own, so that the product needs neither Helm nor Kubernetes. What it makes anew is written with TESTFLAGS=-rewrite.
.PHONY: helm
helm: ## render the Helm chart with many values, and check that Kubernetes and the program take what comes out
	$(GO) -C integration/helm test -count=1 -timeout 10m $(TESTFLAGS) ./...

# What it builds is kept in CLUSTERDIR, and what it runs is gone at the end: see integration/cluster/run.sh.
CLUSTERDIR ?=## where make cluster keeps what it builds; without it, rondo-cluster in the cache directory of the user
.PHONY: cluster
cluster: ## install the Helm chart on a Kubernetes of two nodes on this machine, and upgrade, kill, drain and scale everything under load; as root on Debian
	@CLUSTER_CACHE='$(CLUSTERDIR)' integration/cluster/run.sh

.PHONY: databases
databases: ## say which databases the tests would use
	@echo "DATABASES: SQLite is tested"
	@if [ -n "$(POSTGRES)" ]; then echo "DATABASES: PostgreSQL is tested ($(dir $(POSTGRES)))"; \
	else echo "DATABASES: PostgreSQL IS NOT TESTED; install it, or set RONDO_TEST_PG_BIN to the directory of its binaries"; fi
	@if [ -n "$${RONDO_TEST_DATABASE_URL:-}" ]; then echo "DATABASES: the server at RONDO_TEST_DATABASE_URL is tested"; \
	elif [ -n "$${COCKROACH_BINARY:-}" ]; then echo "DATABASES: CockroachDB is tested ($$COCKROACH_BINARY)"; \
	else echo "DATABASES: CockroachDB IS NOT TESTED; set COCKROACH_BINARY, or RONDO_TEST_DATABASE_URL to the address of a server"; fi
	@if command -v node >/dev/null && command -v npm >/dev/null; then echo "LANGUAGES: the worker in JavaScript is tested, if npm can fetch what it needs"; \
	else echo "LANGUAGES: the worker in JavaScript IS NOT TESTED; install node and npm"; fi

# The modules beside the main one, each with what the product must not depend on.
MODULES := internal/tools integration/otlp integration/dashboards integration/openapi integration/helm deploy/images

# The first line of analyzers is a vet tool (see internal/tools/lint): go vet keeps its results in the build cache.
.PHONY: lint
lint: ## check formatting, and run vet, errcheck, nilerr, exhaustive, staticcheck and actionlint
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not formatted (run make fmt):"; echo "$$unformatted"; exit 1; fi
	@$(GO) -C internal/tools build -o ../../bin/lint ./lint
	$(GO) vet -vettool='$(CURDIR)/bin/lint' ./...
	@for module in $(MODULES); do echo "lint $$module"; $(GO) -C $$module vet -vettool='$(CURDIR)/bin/lint' ./...; done
	$(TOOL) staticcheck ./...
	$(TOOL) actionlint
	@for module in $(MODULES); do echo "staticcheck $$module"; \
		$(GO) -C $$module tool -modfile='$(CURDIR)/internal/tools/go.mod' staticcheck ./...; done

.PHONY: fmt
fmt: ## format all Go files
	gofmt -w .

# HAVING lists the packages with functions of a kind: to link the tests of all others takes longer than to run what is there.
HAVING = $(GO) list -f '{{.Dir}}' $(PACKAGES) | while read -r dir; do ! grep -q '^func $(1)' /dev/null "$$dir"/*_test.go 2>/dev/null || echo "$$dir"; done

# go test -list prints the names of a package's targets, then a line with the package.
# When the time runs out while an input is being tried, go test reports that as a failure of the target: a real one names its
# failing input.
.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME
	@packages=$$($(call HAVING,Fuzz)); targets=$$([ -z "$$packages" ] || $(GO) test -list '^Fuzz' $$packages | awk '/^Fuzz/ { name[n++] = $$1 } $$1 == "ok" { for (i = 0; i < n; i++) print $$2, name[i]; n = 0 }'); \
	log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	if [ -z "$$targets" ]; then echo "there are no fuzz targets in $(PACKAGES)"; exit; fi; \
	while read -r package target; do \
		echo "$$target in $$package, for $(FUZZTIME)"; \
		$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 50x "$$package" </dev/null 2>&1 | tee "$$log" || \
			if grep -q 'context deadline exceeded' "$$log" && ! grep -q 'Failing input' "$$log"; then echo "the time ran out within an input; nothing was found"; \
			else failed=1; fi; \
	done <<<"$$targets"; \
	exit $${failed:-0}

.PHONY: random
random: ## make orchestrations and deliveries up for RANDOMTIME; SEED=N plays one again
	$(GO) test -count=1 -run '^TestRandomOrchestrations$$' ./pkg/round -random $(RANDOMTIME) -seed $(SEED) -v | grep -v -e '^=== RUN' -e '^ *--- PASS: .*/seed=' -e 'the chaos had seed'

# Fresh seeds come after a fixed set. One seed alone is played with its log.
.PHONY: sim
sim: ## run the services in a simulated world where everything goes wrong; SEED=N plays one again
	$(GO) test -count=1 -timeout 2h -run '^TestSeeds' ./integration/simulation -v $(if $(filter-out 0,$(SEED)),-seed $(SEED) -seeds $(N) $(if $(filter 1,$(N)),-log),-seeds $(SEEDS) -for $(SIMTIME)) | grep -v -e '^=== '

.PHONY: mutants
mutants: ## plant mistakes into the product, one after the other, and see the simulation find each of them
	$(GO) test -count=1 -timeout 1h -parallel 4 -run '^TestMutants$$' ./integration/simulation -v -plant | grep -v -e '^=== '

# What is measured and what the columns mean is said in docs/performance.md.
.PHONY: bench
bench: ## measure whole systems, as processes on this machine, and check that what they did was right; nothing else should run
	@$(GO) build -o bin/bench ./bench && rm -f bin/bench.jsonl
	bin/bench -w '$(W)' -database '$(DATABASE)' -runs $(RUNS) -out bin/bench.jsonl $(BENCHFLAGS) >/dev/null
	@bin/bench table bin/bench.jsonl

.PHONY: bench-tiny
bench-tiny: ## run every workload of `make bench` at a tiny size, so that none of them rots
	@$(GO) build -o bin/bench ./bench
	@for database in sqlite $(if $(POSTGRES),postgres); do bin/bench -size tiny -database $$database >/dev/null; done

.PHONY: microbench
microbench: ## run Go's own benchmarks, with their allocations
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) $(PACKAGES)

.PHONY: costs
costs: ## check what must not grow: the cost of a round with its history, a replay, a fan-in, what 100,000 parked instances hold
	$(GO) test -count=1 -v -run '^(TestRoundsDoNotGrowWithHistory|TestRehydrationIsLinear|TestFanInIsLinear|TestManyParkedInstances)$$' ./pkg/round

.PHONY: bench-once
bench-once: ## run each of these once, so that none of them rots
	$(GO) test -run '^$$' -bench . -benchtime 1x $$($(call HAVING,Benchmark))

.PHONY: binary
binary: ## build the command line as it is shipped, and check that it is static and small
	$(GO) build -trimpath -ldflags='-s -w' -o bin/rondo ./cmd/rondo
	@if ldd bin/rondo >/dev/null 2>&1; then echo "bin/rondo is not static"; exit 1; fi
	@size=$$(($$(wc -c <bin/rondo) >> 20)); echo "bin/rondo has $$size MiB"; [ $$size -lt 60 ] || { echo "want less than 60"; exit 1; }

# It compares two programs in one run, so that the speed of the machine does not count.
.PHONY: startup
startup: binary ## measure how quickly the command line starts, beside go version
	@best() { local best=100000 began took; for i in 1 2 3 4 5 6 7 8 9 10; do \
		began=$$(date +%s%N); "$$@" >/dev/null; took=$$((($$(date +%s%N) - began) / 1000000)); \
		[ $$took -ge $$best ] || best=$$took; done; echo $$best; }; \
	rondo=$$(best bin/rondo --help); go=$$(best $(GO) version); \
	echo "it starts within $$rondo ms, go version within $$go ms"; \
	[ $$rondo -lt 50 ] || [ $$rondo -lt $$((3 * go)) ] || { echo "want less than 50 ms, or less than 3 times as long as go version"; exit 1; }

.PHONY: cover
cover: ## say how much of each package is covered by all tests together, and leave the details in cover.out
	@data=$$(mktemp -d); trap 'rm -rf "$$data"' EXIT; \
	$(GO) test -count=1 -cover -coverpkg=$(PACKAGES) $(PACKAGES) -args -test.gocoverdir="$$data" >"$$data/log" || { cat "$$data/log"; exit 1; }; \
	$(GO) tool covdata percent -i="$$data" | awk 'NF > 4 { printf "%-50s %s\n", $$(NF-4), $$(NF-2) }'; \
	$(GO) tool covdata textfmt -i="$$data" -o cover.out; \
	$(GO) tool cover -func cover.out | tail -n 1; \
	echo "to see the lines: go tool cover -html cover.out"

.PHONY: tidy
tidy: ## check that go.mod and go.sum list what is used, no more and no less
	@$(GO) mod tidy -diff || { echo "run: go mod tidy"; exit 1; }
	@for module in $(MODULES); do $(GO) -C $$module mod tidy -diff || { echo "run: go -C $$module mod tidy"; exit 1; }; done
	$(GO) mod verify

# The tests come last: their table is the end of the output. `make deep` has everything else.
.PHONY: ci
ci: tidy lint binary test ## run what has to pass before a change goes in; nothing in it depends on time or chance
