# Kamino. `make help` lists what can be made.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
LAB     := lab/bin/kamino-lab
# As lab/controlplane.BuildFlags, so that make and the tests share one build.
LAB_FLAGS := -ldflags='-s -w \
	-X k8s.io/component-base/version.gitVersion=v1.36.3 \
	-X k8s.io/component-base/version.gitMajor=1 \
	-X k8s.io/component-base/version.gitMinor=36 \
	-X k8s.io/component-base/version.gitTreeState=clean'
# One set of flags for builds, tests and vet, so that each finds in the cache what another compiled: a
# tag that only some had would compile hundreds of Kubernetes' packages twice. Every binary is static.
export GOFLAGS := -buildvcs=false -tags=grpcnotrace
export CGO_ENABLED := 0
export SWEEP

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/kamino and bin/kamino-agent, static and stripped
	@mkdir -p bin
	@.ci/build kamino -ldflags '$(LDFLAGS)' ./cmd/kamino
	@.ci/build kamino-agent -ldflags '$(LDFLAGS)' ./cmd/kamino-agent

.PHONY: lab
lab: ## build lab/bin/kamino-lab, with the Kubernetes control plane in it (4 minutes cold)
	@mkdir -p lab/bin
	@cd lab && ../.ci/build kamino-lab $(LAB_FLAGS) ./cmd/kamino-lab

.PHONY: demo
demo: build lab ## the main job, live: a donor becomes the image of its pool, and the next node boots from it
	$(LAB) demo --cloud $(or $(CLOUD),azure)

# Processor seconds that each part of make test and make test-vm may use with a warm build cache. A part
# fails beyond 1.5 times its bound, whatever the load of the machine. SWEEP=all plays every case of the
# sweeps: then unit has no bound.
BOUND_lint    := 400
BOUND_unit    := 1000
BOUND_race    := 400
BOUND_lab     := 500
BOUND_crash   := 520
BOUND_release := 300
BOUND_vm      := 1300

.PHONY: test
test: compile lint unit race lab-test crash-sample release-check ## what must pass before a change lands: all parts below

.PHONY: compile
compile: ## compile what the parts need; only here a cold build cache costs time
	@.ci/part compile 0 .ci/compile

.PHONY: lint
lint: ## formatting, vet, lint, tidy modules, imports, sizes, generated files
	@.ci/part lint $(BOUND_lint) .ci/lint

.PHONY: unit
unit: ## the tests of the product; sweeps play samples
	@.ci/part unit $(if $(SWEEP),0,$(BOUND_unit)) go test -timeout $(if $(SWEEP),5h,30m) ./...

# Who starts goroutines. The simulation runs one goroutine at a time, and the other packages start none.
RACY := ./engine ./controller/... ./kube ./notify ./azure/... ./aws/... ./providertest ./cmd/kamino \
	$(addprefix ./agent/,inventory scan capture host firstboot watch)

.PHONY: race
race: ## the packages that start goroutines, with the race detector (needs gcc)
	@CGO_ENABLED=1 .ci/part race $(BOUND_race) go test -race -skip '^(TestDefects|TestModels|TestMoto)$$' -timeout 30m $(RACY)

# Their programs are built while they run, which Go's test cache does not see.
.PHONY: lab-test
lab-test: build lab ## end to end: the real kube-apiserver, the cloud SDKs over HTTPS; the alerts, by Prometheus' engine
	@.ci/part lab $(BOUND_lab) .ci/lab

.PHONY: crash-sample
crash-sample: lab ## kill, lie and interfere at a sample of calls; CRASH_SEED draws it
	@.ci/part crash $(BOUND_crash) .ci/crash $(CRASH_SEED)

.PHONY: release-check
release-check: ## make an image and a release for linux/amd64, verify it as its users do, and change each file
	@.ci/part release $(BOUND_release) .ci/release-check

.PHONY: test-crash
test-crash: build lab ## kill, lie and interfere at every call of a run, and check whether anything is lost (an hour)
	$(LAB) crash

.PHONY: test-crash-process
test-crash-process: build lab ## the kills again, with SIGKILL of real processes (10 minutes)
	$(LAB) crash --process

.PHONY: test-storm
test-storm: build lab ## SIGKILL of controllers in the middle of twelve runs, a command beside them, the API server gone, the kind removed (10 minutes)
	cd lab && KAMINO_STORM=$${KAMINO_STORM:-1} go test -count=1 -timeout 40m -v -run TestControllerStorm ./e2e

.PHONY: test-vm
test-vm: build lab ## the main job on virtual machines that really boot; needs QEMU and mmdebstrap
	@KAMINO_VM=1 .ci/part vm $(BOUND_vm) go -C lab test -count=1 -timeout 55m -v ./machines

.PHONY: test-vm-all
test-vm-all: build lab ## test-vm, a bad image that a canary's machine keeps out of the pool, the boot of a generic machine, and the whole circle
	cd lab && KAMINO_VM=all go test -count=1 -timeout 240m -v ./machines

.PHONY: test-witness
test-witness: ## drive AWS's emulator with 78 commands of aws, and with boto3 (a minute); both must be installed, and not older than 2023
	KAMINO_WITNESS=all go test -count=1 -timeout 20m -v -run 'TestCLI|TestBoto3' ./aws/emulator

.PHONY: test-all
test-all: ## every test there is, with whole sweeps: hours
	@$(MAKE) SWEEP=all test test-crash test-crash-process test-witness test-vm-all

.PHONY: bench-vm
bench-vm: build lab ## generic machine, clone and floor side by side, five boots each; needs QEMU and mmdebstrap
	cd lab && KAMINO_VM=1 KAMINO_BENCH=1 go test -count=1 -timeout 4h -v -run TestBenchMachines ./machines

.PHONY: bench
bench: build lab ## measure; one line a figure: BENCH name value unit bound B holds|over
	@.ci/bench

.PHONY: bench-cold
bench-cold: ## measure in an empty build cache: processor time of build and demo, and what tests build again (20 minutes)
	@.ci/bench-cold

.PHONY: seal-planted
seal-planted: ## plant each known kind of secret and identity by itself, seal, and count what a seal misses; seal a Debian (minutes)
	@KAMINO_PLANTED=1 go test -count=1 -timeout 60m -v -run 'TestPlantedEach|TestUnplanted|TestDebianNode' ./agent | grep -vE '^ +(removed|edited|refused) |^=== |^ +--- PASS'

.PHONY: fuzz
fuzz: ## run every Fuzz target of the product for FUZZTIME (30s), at least FUZZLEAST (1000) times, and keep its inputs in .cache/fuzz
	@.ci/fuzz

.PHONY: generate
generate: ## make the kind's CustomResourceDefinition and its copying methods again from api/v1alpha1
	@.ci/generate

.PHONY: image
image: ## dist/kamino-image.tar, an OCI image for amd64 and arm64 (or ARCH), built without a daemon
	@mkdir -p dist
	cd release && go run ./cmd/image -version '$(VERSION)' $(if $(ARCH),-arch '$(ARCH)') -o ../dist/kamino-image.tar

.PHONY: release
release: ## dist/release: archives, packages, images, charts and what verifies them, for REGISTRY, signed with KEY, checked with VULNDB (docs/release.md)
	cd release && go run ./cmd/release -o ../dist/release -registry '$(REGISTRY)' $(if $(KEY),-key '$(abspath $(KEY))') $(if $(UNSIGNED),-unsigned) $(if $(VULNDB),-vulndb '$(abspath $(VULNDB))') $(if $(UNCHECKED),-unchecked) $(if $(TARGETS),-targets '$(TARGETS)')

.PHONY: release-twice
release-twice: ## build linux/amd64 from two directories, the second time with an empty cache, and compare every byte (10 minutes)
	@.ci/release-twice

.PHONY: clean
clean: ## remove what make has built
	rm -rf bin dist lab/bin lab/out
