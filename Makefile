# Every target runs from a fresh clone on a Debian machine with Go.
SHELL := /bin/bash
BIN := bin/numalet
RUNTIME ?= sim
# yes: the playground's agent is a node of a control plane of its own
CLUSTER ?=
# a machine whose GPUs are played with: dgxa100, dgxh100, dgxh200, dgxb200, gb200, pcie8 ...
GPU ?=
RUN_FLAGS ?=
# for make bench, like -bench=Merge, -short, or -count=6 for benchstat to tell noise from change
BENCH_FLAGS ?=
# for make faults (200) and make attack (100)
ROUNDS ?=
VERSION ?= $(shell git describe --tags --always --abbrev=12 --dirty 2>/dev/null)
VERSION_VAR := github.com/numalet/numalet/internal/version.build
export CGO_ENABLED ?= 0
# All is built alike, the servers of tests too, so that what it shares is compiled once.
export GOFLAGS ?= -trimpath

DESTDIR ?=
PREFIX ?= /usr/local
INSTALLED := numalet numalet-lab numalet-gpu

.PHONY: help build install uninstall dist run answers test test-all unit sim containerd numa cluster race fuzz guests soak walks walk faults attack bench peer scenarios schedulers proto check clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/numalet, bin/numalet-lab, and bin/numalet-gpu for NVIDIA's driver where a C compiler is
	@mkdir -p bin
	@[ -e $(BIN) ] || echo "the first build downloads 100 MB of modules" \
	  "and compiles 1,400 packages: some minutes on two cores; later ones take seconds"
	go build -ldflags "-X $(VERSION_VAR)=$(VERSION)" -o bin/ ./cmd/numalet ./cmd/numalet-lab
	@cgo=1; command -v $${CC:-gcc} >/dev/null || { cgo=0; echo "there is no C compiler ($${CC:-gcc}):" \
	  "bin/numalet-gpu is built without NVIDIA's driver, for --mock only"; }; \
	CGO_ENABLED=$$cgo CGO_CFLAGS="-O2 -Wno-deprecated-declarations" go build \
	  -ldflags "-X $(VERSION_VAR)=$(VERSION)" -o $(BIN)-gpu ./cmd/numalet-gpu

install: build ## install programs, units, manual pages and completions below DESTDIR and PREFIX (/usr/local)
	@cmd/packaging/manual.sh bin/manual
	@cmd/packaging/install.sh install "$(DESTDIR)" "$(PREFIX)" bin bin/manual $(INSTALLED)

uninstall: ## remove what make install has installed below DESTDIR and PREFIX
	@cmd/packaging/install.sh uninstall "$(DESTDIR)" "$(PREFIX)" bin bin/manual $(INSTALLED)

dist: ## make packages (.deb, .rpm, .tar.gz), images, chart, SBOM and checksums in dist/
	@cmd/packaging/dist.sh dist

run: answers build ## start the playground; RUNTIME=containerd (root), CLUSTER=yes for a node, GPU=dgxh100 for GPUs, DRA=yes by claim
	@if [ "$(RUNTIME)" = containerd ]; then \
	  test/tools/install.sh && tools=$$(test/tools/build.sh) && export NUMALET_TOOLS=$$tools || exit 1; \
	fi; if [ "$(CLUSTER)" = yes ]; then \
	  cluster=$$(test/tools/build.sh cluster) && set -- --cluster=$$cluster || exit 1; \
	fi; if [ -n "$(GPU)" ]; then set -- "$$@" --gpu=$(GPU); fi; \
	if [ "$(DRA)" = yes ]; then set -- "$$@" --dra; fi; exec $(BIN)-lab playground --runtime=$(RUNTIME) "$$@" $(RUN_FLAGS)

answers: # a CLUSTER=1 that did nothing would mislead
	@for one in "CLUSTER=$(CLUSTER)" "DRA=$(DRA)"; do case "$$one" in \
	  *=|*=yes|*=no) ;; *) echo "$$one: say yes or no" >&2; exit 2;; esac; done

test: ## install what is missing and run what needs no emulated machine and no Kubernetes; SLOWEST=50 lists tests
	@test/run.sh unit sim containerd

test-all: test ## that and the rest: long random walks, an emulated NUMA machine, a node of a real control plane
	@test/run.sh walks numa cluster

unit: ## only the tests beside the code
	@test/run.sh unit

sim: ## only the built binary on the simulated runtime
	@test/run.sh sim

walks: ## only the tests that are shorter in unit and sim, in full
	@test/run.sh walks

containerd: ## only the built binary on a real containerd (root)
	@test/run.sh containerd

numa: ## only the built binary in an emulated NUMA machine with a real kernel
	@test/run.sh numa

guests: ## more emulated machines: network functions, RDMA, swap, pods that take all, a shutdown, project quotas
	@test/run.sh guests

cluster: ## only the built binary as a node of a real control plane (all of it as root)
	@test/run.sh cluster

race: ## unit and sim under the race detector, which watches the agents too (gcc)
	@test/run.sh --race unit sim

fuzz: ## each fuzz target for FUZZTIME (10s); FUZZKEEP=N keeps N inputs of each
	@test/fuzz.sh $${FUZZTIME:-10s} $${FUZZKEEP:-0}

soak: ## good pods beside hostile manifests, clients and plugins, for SOAKTIME (5m), on a quiet machine
	NUMALET_SOAK=$${SOAKTIME:-5m} go test ./test -run TestSoak -count=1 -v -timeout 2h

walk: ## the random walks of which the tier walks goes a part: admission with claims and the line alone, evictions, shutdowns; WALKSTEPS (1000000)
	NUMALET_STEPS_CLAIMS=1 NUMALET_STEPS=$${WALKSTEPS:-1000000} go test ./agent/placement/admission -run TestRandomSteps -count=1 -v -timeout 2h
	NUMALET_STEPS=$${WALKSTEPS:-1000000} go test ./agent/placement/admission/line ./agent/node/eviction ./agent/node/shutdown -run Walk -count=1 -v -timeout 2h

bench: build ## measure the agent and its managers, beside the run before (bench/*.txt)
	@mkdir -p bench; set -o pipefail; cluster=$$(test/tools/build.sh cluster) || exit 1; \
	NUMALET_CLUSTER=$$cluster NUMALET_PROGRAMS=$(CURDIR)/bin go test ./test/bench ./deviceplugin/gpu/prefer -run '^$$' -bench . -timeout 60m \
	  $(BENCH_FLAGS) | tee bench/new.txt || exit 1; \
	if [ -f bench/latest.txt ]; then mv bench/latest.txt bench/before.txt; fi; \
	mv bench/new.txt bench/latest.txt
	@go tool -modfile=test/bench/stat/go.mod benchstat $$(ls bench/before.txt bench/latest.txt 2>/dev/null)

peer: ## numalet beside the stock kubelet, PEER_ROUNDS (3), on a quiet machine (root); bench/peer.json
	test/tools/install.sh && NUMALET_TOOLS=$$(test/tools/build.sh) NUMALET_PEER=$${PEER_ROUNDS:-3} \
	NUMALET_CLUSTER=$$(test/tools/build.sh cluster) NUMALET_PEER_OUT=$(CURDIR)/bench/peer.json \
	  go test ./test/peer -run TestPeer -count=1 -v -timeout 2h $(PEER_FLAGS)

faults: ## ROUNDS (200) accidents of each kind that befall a node of a cluster, for hours (root)
	test/tools/install.sh && cluster=$$(test/tools/build.sh cluster) && tools=$$(test/tools/build.sh) && \
	NUMALET_FAULT_ROUNDS=$(or $(ROUNDS),200) NUMALET_CLUSTER=$$cluster NUMALET_TOOLS=$$tools \
	  go test ./test/cluster -run 'TestFaults' -count=1 -v -timeout 8h

attack: build ## ROUNDS (100) of each attack on a node and its API server, ATTACK_SEED repeats a run (root)
	cluster=$$(test/tools/build.sh cluster) && NUMALET_PROGRAMS=$(CURDIR)/bin \
	NUMALET_ATTACK_ROUNDS=$(or $(ROUNDS),100) NUMALET_ATTACK_SEED=$(ATTACK_SEED) NUMALET_CLUSTER=$$cluster \
	  go test ./test/cluster -run 'TestAttacks$$' -count=1 -v -timeout 8h

scenarios: ## what watchers see of pods here and under the stock kubelet, SCENARIOS=regexp, PODS (60) by chance (root)
	NUMALET_SCENARIOS=$(SCENARIOS) NUMALET_SCENARIOS_PODS=$(or $(PODS),60) NUMALET_CLUSTER=$$(test/tools/build.sh cluster) \
	  go test ./test/cluster -run 'TestLifecycleScenarios$$' -count=1 -v -timeout 1h

schedulers: ## 200 pods on four nodes by two schedulers, one of which reads NodeResourceTopology (root)
	NUMALET_CLUSTER=$$(test/tools/build.sh cluster) \
	NUMALET_SCHEDULER=$$(test/tools/build.sh schedulers)/scheduler \
	  go test ./test/schedulers -count=1 -v -timeout 30m

proto: ## generate Go code from the .proto files (needs protoc)
	@test/tools/proto.sh

check: ## gofmt and the linters of .golangci.yml, go vet among them
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt -w on these"; exit 1; }
	@echo "golangci-lint: the first time it is downloaded and built, some minutes on two cores, and" \
	  "looks at everything, some minutes more; later it takes less than one"
	@go tool -modfile=test/lint/go.mod golangci-lint run --allow-parallel-runners ./...

clean: ## remove what was built here
	rm -rf bin bench dist
