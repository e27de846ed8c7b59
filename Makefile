# Kamino. `make help` lists what can be made.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

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
SEEDS   ?= 10000
# One set of flags for builds, tests and vet, so that each finds in the cache what another compiled: a
# tag that only some had would compile hundreds of Kubernetes' packages twice. Every binary is static.
export GOFLAGS := -buildvcs=false -tags=grpcnotrace
export CGO_ENABLED := 0

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

.PHONY: test
test: test-product test-lab ## all tests: the product's, then the whole product against a real API server

.PHONY: test-product
test-product: ## the product's own tests, with SEEDS random walks (10000)
	SEEDS=$(SEEDS) go test -timeout 30m ./...

# The seal's tests start themselves again in trees without a dynamic linker.
RACE_STATIC := -tags=grpcnotrace,netgo,osusergo -ldflags='-linkmode=external -extldflags=-static'

# The sweeps do a thousand times over what other tests do once: they run without the detector, which makes
# them ten times as slow and finds nothing there that it does not find in the others.
SWEEPS := ^(TestPowerCut|TestForeign|TestSingle.*|TestProve|TestPointerUpdate|TestDefects)$$

.PHONY: test-race
test-race: ## the product's tests with the race detector; the sweeps, and a tenth of the walks, without it (needs gcc)
	CGO_ENABLED=1 SEEDS=$$(($(SEEDS) / 100)) go test -count=1 -race $(RACE_STATIC) -skip '$(SWEEPS)' -timeout 60m ./...
	SEEDS=$$(($(SEEDS) / 10)) go test -count=1 -run '$(SWEEPS)|^TestWalks$$' -timeout 30m ./agent/seal ./internal/sim

.PHONY: test-lab
test-lab: build lab ## end to end: the real kube-apiserver, the Azure SDK over HTTPS; the alerts, by Prometheus' engine
	cd lab && go test ./...
	cd lab/alerts && go test ./...

.PHONY: test-crash
test-crash: build lab ## kill, lie and interfere at every call of a run, and check whether anything is lost (an hour)
	$(LAB) crash

.PHONY: test-crash-process
test-crash-process: build lab ## the kills again, with SIGKILL of real processes (10 minutes)
	$(LAB) crash --process

.PHONY: test-storm
test-storm: build lab ## SIGKILL of controllers in the middle of twelve runs, a command beside them, the API server gone, the kind removed (10 minutes)
	cd lab && KAMINO_STORM=$${KAMINO_STORM:-1} go test -count=1 -timeout 40m -v -run TestControllerStorm ./e2e

.PHONY: test-prove
test-prove: build lab ## good images, bad ones and unlucky clouds are put to the proof, each check is switched off once (12 minutes)
	$(LAB) prove

.PHONY: test-vm
test-vm: build lab ## the main job on virtual machines that really boot; needs QEMU and mmdebstrap
	cd lab && KAMINO_VM=1 go test -count=1 -timeout 120m -v ./machines

.PHONY: test-vm-all
test-vm-all: build lab ## test-vm, a bad image that a canary's machine keeps out of the pool, the boot of a generic machine, and the whole circle
	cd lab && KAMINO_VM=all go test -count=1 -timeout 240m -v ./machines

.PHONY: test-witness
test-witness: ## drive AWS's emulator with 78 commands of aws, and with boto3 (a minute); both must be installed, and not older than 2023
	KAMINO_WITNESS=all go test -count=1 -timeout 20m -v -run 'TestCLI|TestBoto3' ./aws/emulator

.PHONY: test-vm-former
test-vm-former: build lab ## test-vm with the agent of the release before, which seals and boots for this kamino
	cd lab && KAMINO_VM=1 KAMINO_VM_AGENT=former go test -count=1 -timeout 120m -v -run TestPrototype ./machines

.PHONY: test-all
test-all: test test-race test-crash test-crash-process test-prove test-witness test-vm-all test-vm-former ## every test there is, whole sweeps: hours

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
seal-planted: ## plant each known kind of secret and identity by itself, seal, and count what a seal misses (minutes)
	KAMINO_PLANTED=1 go test -count=1 -timeout 60m -run 'TestPlantedEach|TestUnplanted' ./agent

.PHONY: fuzz
fuzz: ## run every Fuzz target of the product for FUZZTIME (30s)
	@.ci/fuzz

.PHONY: verify
verify: ## formatting, vet, lint, the numbers of the house, and that generated files are up to date
	@.ci/verify

.PHONY: generate
generate: ## make the kind's CustomResourceDefinition and its copying methods again from api/v1alpha1
	@.ci/generate

.PHONY: image
image: ## dist/kamino-image.tar, an OCI image for amd64 and arm64 (or ARCH), built without a daemon
	@mkdir -p dist
	cd release && go run ./cmd/image -version '$(VERSION)' $(if $(ARCH),-arch '$(ARCH)') -o ../dist/kamino-image.tar

.PHONY: release
release: ## dist/release: archives, packages, images, charts and what verifies them, for REGISTRY, signed with KEY (docs/release.md)
	cd release && go run ./cmd/release -o ../dist/release -registry '$(REGISTRY)' $(if $(KEY),-key '$(abspath $(KEY))') $(if $(UNSIGNED),-unsigned) $(if $(TARGETS),-targets '$(TARGETS)')

.PHONY: release-twice
release-twice: ## build linux/amd64 from two directories, the second time with an empty cache, and compare every byte (10 minutes)
	@.ci/release-twice

.PHONY: test-release
test-release: ## make a release for linux/amd64, verify it as its users do, and change each file
	cd release && go test ./...

.PHONY: clean
clean: ## remove what make has built
	rm -rf bin dist lab/bin lab/out
