# Everything that can be made of this repository. Needs Go 1.26, git and make
# (GNU make 3.81, which macOS has, or newer), and nothing else.

GO       ?= go
BIN      := bin
PLATFORM := examples/fleet/platform

# Programs of others that the tests run as a tenant would.
CLIENTS := $(addprefix $(BIN)/, helm flux tenure-issuer)

# Modules with packages of ours. hack/tools pins the linter, and hack/apigen the generator of CRDs.
# cluster/flux has a main package that only hack/build compiles.
MODULES := . cluster sigstore $(filter-out hack/tools hack/apigen,$(patsubst %/go.mod,%,$(wildcard hack/*/go.mod)))

# What cluster/ does is tested by test/e2e on the built program; go test would
# compile Kubernetes once more, for the race detector and for nothing.
TESTED := $(filter-out cluster,$(MODULES))

# No program needs C, the released ones have none, and kustomize's package for plugins makes the C
# linker keep what nobody calls: with it, programs take twice as long to link.
export CGO_ENABLED := 0

# The race detector needs a C compiler; without one the tests run all the same.
RACE = $(shell [ "$$(env -u CGO_ENABLED $(GO) env CGO_ENABLED)" = 1 ] && echo -race)

# Packages that are tested with the race detector: those with goroutines of their own. It takes up
# to five times as long, and each of its programs five times as long to link. `make test
# RACED=./...` tests all with it but test/e2e, also the manager as a whole.
RACED ?= $(addprefix ./internal/, admission/webhook/... flux localcluster/... process proxy/... tenancy verify/catalog)

# Tests of the proxy that run without the race detector: it takes memory, which they measure, and six
# times as long.
UNRACED := ^TestMemory$$

# How long the tests of one package may take: on two slow cores those of test/e2e that `make test` runs
# take three quarters of an hour.
TIMEOUT ?= 120m

# Tests of test/e2e that `make test` leaves out, and that `make test-all` runs every night, because they
# take long: docs/design/verify.md says what is then found later. TestAblation and TestVerifyTenurePolicies
# try a quarter of their rows, and `make ablation` all. `make test-all` interrupts commands before every
# fifth of their writes.
LONG := $(foreach test, BootstrapInterrupted ChartFaults ClustersSideBySide ManifestsByKubectl MultiTenancyUnchanged Mutants PinnedFleet \
	ProfileThereAndBack Release VerifyBrokenFleet VerifySeveralClusters VerifyWithoutControlPlane, ^Test$(test)$$) \
	TestPatches/^wide_role$$ TestVerifyImageAutomation/^without_any_control$$ TestVerifyPublicFleets/^flux2-multi-tenancy$$ \
	$(foreach fleet, accounts all-teams azure beside by-hand by-kubectl by-name exempt flux2-multi-tenancy in-flux-system labelled mesh older open operator-oci \
	reference, TestCorpus/^$(fleet)$$)

# How many tests of test/e2e run at a time; empty for two for each processor.
# Each may run a cluster, which takes a gigabyte of memory.
PARALLEL ?=

# The version as which the programs are built, and the repository of the image that belongs
# to it: `make build VERSION=v0.1.0 REPOSITORY=registry.example.com/tenure-server`. Without
# them it is a development build, or the commit's tag.
STAMP = $(if $(VERSION),-version '$(VERSION)') $(if $(REPOSITORY),-repository '$(REPOSITORY)')

# The go command uses every core by itself: programs are built one by one.
.NOTPARALLEL:
space := $(subst ,, )
.DEFAULT_GOAL := help
.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: $(BIN)/tenure-cluster $(BIN)/tenure-flux | check-tools ## build every program into bin/
	@$(GO) run ./hack/build $(STAMP) -o $(BIN) tenure tenure-server tenure-sigstore

# Unlike our own programs, Kubernetes and Flux change only with their versions,
# so make's timestamps decide, and an unchanged program costs nothing.
$(BIN)/tenure-cluster: cluster/go.mod cluster/go.sum $(wildcard cluster/*.go) | check-tools
	@$(GO) run ./hack/build -o $(BIN) $(@F)

$(BIN)/tenure-flux: cluster/flux/go.mod cluster/flux/go.sum cluster/flux/main.go | check-tools
	@$(GO) run ./hack/build -o $(BIN) $(@F)

# Other minor versions of Kubernetes, for `tenure up --kubernetes`. Not a part of `make build`: each
# takes as long as the whole of Kubernetes does. This is the oldest that Tenure supports.
OTHER := 1.33

.PHONY: kubernetes
kubernetes: $(BIN)/tenure-cluster-$(or $(VERSION),$(OTHER)) ## build the control plane of another minor version: make kubernetes VERSION=1.33

$(BIN)/tenure-cluster-%: cluster/kubernetes-%.mod cluster/kubernetes-%.sum $(wildcard cluster/*.go) | check-tools
	@$(GO) run ./hack/build -o $(BIN) $(@F)

# The rules on that version. By default, 1.33 and 1.34 drop the image volumes of Pods, before 1.36
# there are no MutatingAdmissionPolicies, the scheduler makes no claims of devices, and an API server may
# end while policies are written under load (kubernetes/kubernetes#135757). By default, 1.33 has no devices, no
# attributes classes of volumes and no resources of a whole Pod.
ON_1.33 := -skip '^(TestDefaults|TestShards|TestCapsuleRulesOf(Pods|AllowedResources)|TestUpgradeUnderAttack|TestNarrowed)$$|^TestLimits$$/^(controllers|an_image_volume.*|.*_device_.*|another_attributes_class.*)$$|^TestAllocations$$/_device_|^TestImages$$/^mounted$$'
ON_1.34 := -skip '^(TestDefaults|TestShards|TestCapsuleRulesOfPods|TestUpgradeUnderAttack)$$|^TestLimits$$/^(controllers|an_image_volume.*)$$|^TestImages$$/^mounted$$'
ON_1.35 := $(ON_1.34)

.PHONY: test-kubernetes
test-kubernetes: kubernetes ## test the rules on that version
	@TENURE_TEST_KUBERNETES=$(or $(VERSION),$(OTHER)) $(GO) test -vet=off -count=1 -timeout $(TIMEOUT) $(ON_$(or $(VERSION),$(OTHER))) ./internal/admission

.PHONY: clients
clients: $(CLIENTS) ## build helm, flux and an OpenID Connect provider, which the tests use beside kubectl

$(BIN)/helm: cluster/flux/go.mod cluster/flux/go.sum | check-tools
	@$(GO) run ./hack/build -o $(BIN) $(@F)

$(BIN)/flux: hack/fluxmanifests/go.mod hack/fluxmanifests/go.sum | check-tools
	@$(GO) run ./hack/build -o $(BIN) $(@F)

$(BIN)/tenure-issuer: hack/issuer/go.mod hack/issuer/go.sum $(wildcard hack/issuer/*.go) | check-tools
	@$(GO) run ./hack/build -o $(BIN) $(@F)

# Not a part of `make build`: it is under the AGPL, and takes minutes.
.PHONY: flux-operator
flux-operator: $(BIN)/flux-operator ## build flux-operator, which fleets with a FluxInstance or ResourceSets need on the local cluster

$(BIN)/flux-operator: cluster/fluxoperator/go.mod cluster/fluxoperator/go.sum | check-tools
	@$(GO) run ./hack/build -o $(BIN) $(@F)

# Not a part of `make build` either: only fleets with Kyverno need it, and it takes minutes.
KYVERNO := $(addprefix $(BIN)/, kyverno kyverno-background-controller)

.PHONY: kyverno
kyverno: $(KYVERNO) ## build Kyverno, which fleets with its policies need on the local cluster

$(KYVERNO): cluster/kyverno/go.mod cluster/kyverno/go.sum | check-tools
	@$(GO) run ./hack/build -o $(BIN) $(@F)

.PHONY: up
up: build ## start a local cluster and reconcile the example fleet, until Ctrl-C
	@$(BIN)/tenure up --fleet $(PLATFORM) --path clusters/staging \
		--map 'https://git.example.com/acme/dev-team#main=examples/fleet/dev-team' \
		--map 'https://git.example.com/acme/billing#main=examples/fleet/billing' \
		--map 'https://charts.example.com=examples/charts' \
		--apply examples/fleet/bootstrap

# Packages whose tests start no cluster and no built program.
UNIT = $(shell $(GO) list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... | grep -vE 'test/fixtures/test(cluster|manager|program)' | cut -d' ' -f1)

.PHONY: format
format: ## fail if a Go file is not formatted
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [ -n "$$unformatted" ]; then \
		echo "✗ not formatted (gofmt -w them):" >&2; echo "$$unformatted" >&2; exit 1; \
	fi

.PHONY: check
check: format $(BIN)/golangci-lint | check-tools ## format, lint and unit tests of the root module, for use while working
	@$(BIN)/golangci-lint run --config .golangci.yml ./...
	@$(GO) test -vet=off $(UNIT) # the linter has run govet

.PHONY: test
test: build clients flux-operator kyverno generate-check $(BIN)/gotestsum ## run the tests of all modules, without those that take long
	@GO='$(GO)' GOTESTSUM='$(CURDIR)/$(BIN)/gotestsum' TIMEOUT='$(TIMEOUT)' SKIP='$(subst $(space),|,$(strip $(LONG)))' RACE='$(RACE)' RACED='$(RACED)' UNRACED='$(UNRACED)' PARALLEL='$(PARALLEL)' hack/test.sh $(TESTED)

$(BIN)/gotestsum: hack/tools/gotestsum.mod hack/tools/gotestsum.sum | check-tools
	@cd hack/tools && $(GO) build -modfile=gotestsum.mod -ldflags='-s -w' -o $(CURDIR)/$(BIN)/gotestsum gotest.tools/gotestsum

# At first the tests that are not in LONG, which fail sooner.
.PHONY: test-all
test-all: test ablation ## run every test, which takes hours
	@GOGC=$${GOGC:-400} $(GO) test -vet=off -timeout $(TIMEOUT) ./test/e2e -parallel $(or $(PARALLEL),3) -run '$(subst $(space),|,$(strip $(LONG)))' -interrupts=5

.PHONY: lint
lint: format workflows $(BIN)/golangci-lint ## check formatting and style
	@set -e; for module in $(MODULES); do \
		echo "golangci-lint in $$module"; \
		(cd $$module && $(CURDIR)/$(BIN)/golangci-lint run --config $(CURDIR)/.golangci.yml ./...); \
	done

# Without programs that some machines have, so that all find the same.
.PHONY: workflows
workflows: | check-tools ## check the workflows of GitHub with actionlint
	@cd hack/tools && $(GO) tool -modfile=actionlint.mod actionlint -shellcheck= -pyflakes= \
		$(CURDIR)/.github/workflows/*.yaml $(CURDIR)/examples/github-actions/verify.yaml

# What this machine's system does not compile, the other one's does: both are
# supported, and a call that only one of them has is found here.
.PHONY: portable
portable: check-tools ## check that everything compiles on Linux and macOS
	@cd hack/portable && $(GO) build -o $(CURDIR)/$(BIN)/portable .
	@set -e; for os in linux darwin; do \
		[ $$os != "$$($(GO) env GOHOSTOS)" ] || continue; \
		echo "type-checking for $$os"; \
		$(BIN)/portable $$os ./...; \
	done

# The linter's version is pinned by a module of its own, so that its several
# hundred dependencies stay out of ours.
$(BIN)/golangci-lint: hack/tools/go.mod hack/tools/go.sum | check-tools
	@echo "building golangci-lint (about a minute)"
	@cd hack/tools && $(GO) build -ldflags='-s -w' -o $(CURDIR)/$(BIN)/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: generate
generate: check-tools ## write generated files anew
	@$(GO) generate ./...

.PHONY: generate-check
generate-check: check-tools ## fail when a generated file is not up to date
	@hack/generate-check.sh

.PHONY: golden
golden: build ## write the golden reports of the public fleets, and the report in the documentation, anew
	@$(GO) test ./test/e2e -run '^TestVerifyPublicFleets$$|^TestAblation$$/^$$' -parallel 1 -timeout $(TIMEOUT) -update

.PHONY: ablation
ablation: build ## take each control of the example fleet away, try all attacks each time, and print what gets through
	@$(GO) test -vet=off -timeout $(TIMEOUT) ./test/e2e -v -count=1 -run '^(TestAblation|TestVerifyTenurePolicies)$$' -rows=1 -others=1

.PHONY: mutate
mutate: build flux-operator ## take out or weaken each control of the corpus' fleets, and compare what turns with what must
	@GOGC=$${GOGC:-400} $(GO) run ./hack/mutate

# A target that comes into a new path waits for input to be made small, which is not
# what the time is for. Only what is found is kept, in testdata of the package.
FUZZTIME ?= 10s
.PHONY: fuzz
fuzz: check-tools ## let each fuzz test look for input that breaks it, for FUZZTIME
	@set -e; $(GO) list -f '{{.Dir}}' ./... | while read -r dir; do \
		for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$dir"/*_test.go 2>/dev/null); do \
			echo "$$name in $${dir#$(CURDIR)/}"; \
			$(GO) test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5x -timeout $(TIMEOUT) "$$dir"; \
		done; \
	done

# BENCH selects benchmarks: `make bench BENCH=PodCreate` runs one.
BENCH ?= .
.PHONY: bench
bench: SHELL := bash -o pipefail
bench: build ## run the benchmarks, and write docs/benchmarks.md
	@cd hack/benchmarks && $(GO) build -o $(CURDIR)/$(BIN)/benchmarks .
	@$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 4h ./... | $(BIN)/benchmarks docs/benchmarks.md

# FILES selects test files by a regular expression: `make capsule-suite FILES=ingress_class`.
.PHONY: capsule-suite
capsule-suite: build ## run Capsule's end-to-end tests against the layer for Capsule, and write a table into dist/capsulesuite
	@$(GO) run ./hack/capsulesuite $(if $(FILES),-focus '$(FILES)')

# What an image is built from, and where it goes: docs/how-to/release.md.
IMAGE = $(GO) run ./hack/image $(STAMP) $(if $(KEY),-key '$(KEY)') $(if $(PUSH),-push '$(PUSH)') $(if $(BUILDER),-builder '$(BUILDER)') $(if $(SYSTEMS),-systems '$(SYSTEMS)')

.PHONY: image
image: check-tools ## build the image of tenure-server and the chart into dist/, without Docker; KEY=cosign.key signs, PUSH=REPOSITORY:TAG pushes
	@$(IMAGE)

.PHONY: archives
archives: check-tools ## the same, and the archives of tenure for each system with checksums
	@$(IMAGE) -archives

.PHONY: licenses
licenses: check-tools ## write the licences of everything that is linked into the programs, into dist/
	@$(IMAGE) -licences

.PHONY: programs
programs: build ## pack the local cluster's programs of this system, for tenure up --programs
	@$(IMAGE) -programs $(BIN)

.PHONY: release
release: check-tools ## the same as archives from a tagged commit without changes, signed with KEY=cosign.key
	@$(IMAGE) -release

# Hugo's version, and its theme's, are pinned by a module of their own like the linter's.
$(BIN)/hugo: hack/site/hugo/go.mod hack/site/hugo/go.sum | check-tools
	@echo "building hugo (about four minutes of one core)"
	@cd hack/site/hugo && $(GO) build -ldflags='-s -w' -o $(CURDIR)/$(BIN)/hugo github.com/gohugoio/hugo

# SOURCE is the working tree of the version, and ADDRESS the address of the site.
.PHONY: site
site: $(BIN)/hugo ## make the pages of docs/ a site in dist/site, and check its links; VERSION=v0.1.0 adds a version
	@$(GO) run ./hack/site $(if $(VERSION),-version '$(VERSION)') $(if $(SOURCE),-source '$(SOURCE)') $(if $(ADDRESS),-address '$(ADDRESS)')

.PHONY: clean
clean: ## remove what was built (the go command keeps its cache)
	@rm -rf $(BIN) dist

.PHONY: check-tools
check-tools:
	@hack/check-tools.sh
