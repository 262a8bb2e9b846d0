# make help lists what there is to do.

# Pinned tools, built and run by go run.
GOLANGCI_LINT = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOTESTSUM     = go run gotest.tools/gotestsum@v1.13.0
GOVULNCHECK   = go run golang.org/x/vuln/cmd/govulncheck@v1.6.0
ACTIONLINT    = go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
GORELEASER    = go run github.com/goreleaser/goreleaser/v2@v2.16.0
HELM          = GOWORK=off go -C deploy/helm tool helm

# What may be given on the command line.
EVENTS   ?= 0
VERSION  ?= 17
KAFKA    ?= # empty: scripts/kafka.sh knows its version
FUZZTIME ?= 20s
TIMEOUT  ?= 25m
RACE     ?= $(if $(shell command -v $(CC)),-race) # the race detector needs a C compiler
PKG      ?= work # the packages of all modules that go.work names
ARGS     ?=

# Stamped by us: go's own stamping fails in a clone that somebody else owns.
RELEASE := $(shell git describe --tags --match 'v[0-9]*' --always --dirty 2>/dev/null || echo dev)
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)

# Parts of libraries that our programs do not use, 2 MB: HTTP/2 (/metrics and the page
# are asked for without TLS) and pgx's list of types (catalog has its own).
TAGS = nethttpomithttp2,nopgxregisterdefaulttypes

# The linker drops debugging information (-w): the compiler need not make it.
GOBUILD  = CGO_ENABLED=0 go build -tags $(TAGS) -trimpath -buildvcs=false -gcflags=all=-dwarf=false -ldflags "-s -w -X main.version=$(RELEASE) -X main.commit=$(COMMIT)"

# The packages whose tests import the given one of our test environments.
users_of = $(shell go list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}} ' $(PKG) | grep '/internal/lab/$(1) ' | cut -d' ' -f1)

# Tests that need PostgreSQL find it; this gets it first where there is none.
POSTGRES = go run -buildvcs=false ./internal/lab/pgserver/pgbin

.DEFAULT_GOAL := help
.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: compiling
compiling:
	@echo "Compiling what has changed; the first time takes a minute or two."

.PHONY: demo
demo: compiling ## watch orders travel from PostgreSQL to Kafka; EVENTS=50 stops by itself
	@mkdir -p bin
	@$(GOBUILD) -o bin/cdc-outbox-demo ./cmd/cdc-outbox-demo
	@exec bin/cdc-outbox-demo --events $(EVENTS)

.PHONY: example-payments
example-payments: postgres ## pay, ship, kill, pay again: examples/payments with servers of its own (a minute)
	@go test -count=1 -v -run '^TestE2EExamplePayments$$' ./e2e

.PHONY: build
build: ## bin/cdc-outbox, a static binary
	@mkdir -p bin
	@$(GOBUILD) -o bin/cdc-outbox ./cmd/cdc-outbox

# No debugging information to link, which takes a while for each package; make vet
# is a target of its own.
QUICK = -ldflags=-w -vet=off

# Tests named TestE2E… are the second tier: whole programs, kills, crashes,
# takeovers, clusters. They are judged by what was lost, repeated or reordered.
# The packages whose tests start no program, hence no server: they do not link
# internal/lab/child. Those of two others compile for minutes.
SERVERLESS = $(shell go list -test -f '{{if eq .Name "main"}}{{.ImportPath}} {{join .Deps " "}} {{end}}' work | sed -n '/\/internal\/lab\/child /d; s/\.test .*//p' | grep -v '/deploy$$\|/tests/modules$$')

.PHONY: check
check: vet lint ## before a commit: vet, lint and the tests that need no server
	@GOTESTSUM="$(GOTESTSUM)" PACKAGES="$(SERVERLESS)" scripts/test.sh -timeout $(TIMEOUT) $(QUICK) -skip '^TestE2E' $(ARGS)

.PHONY: test
test: postgres dynamodb kafka ## all tests but the second tier, with the race detector, in random order; PKG=./wal for some
	@GOTESTSUM="$(GOTESTSUM)" PACKAGES="$(if $(filter work ./...,$(PKG)),$(shell go list work | grep -v '/e2e\(/\|$$\)'),$(PKG))" RACE="$(RACE)" scripts/test.sh -shuffle=on -timeout $(TIMEOUT) -p 4 $(QUICK) -skip '^TestE2E' $(ARGS)

.PHONY: test-e2e
# The race detector would take minutes for PLAIN: tests of programs in other processes, and of
# computations. With PLAIN= on the command line they have it, too.
PLAIN = ./bench/drain/ ./e2e/ ./internal/lab/exactlyonce/ ./tests/debezium/
test-e2e: postgres dynamodb kafka chromium ## the second tier: programs that are killed, servers that crash, mutants, examples
	@GOTESTSUM="$(GOTESTSUM)" PACKAGES="$(filter-out $(PLAIN),$(sort $(dir $(shell grep -rl --include='*_test.go' '^func TestE2E' .))))" PLAIN="$(PLAIN)" RACE="$(RACE)" scripts/test.sh -shuffle=on -timeout 45m $(QUICK) -run '^TestE2E' $(ARGS)

.PHONY: test-fast
test-fast: ## the same without the race detector
	@$(MAKE) --no-print-directory test RACE=

.PHONY: test-pg
test-pg: ## the tests that use PostgreSQL, against VERSION=14 to 19 (downloaded once; nobody has binaries of 19 yet: CDC_OUTBOX_PG_BIN names a build)
	@bin=$$($(POSTGRES) -version $(VERSION)) && \
	CDC_OUTBOX_PG_BIN=$$bin GOTESTSUM="$(GOTESTSUM)" PACKAGES="$(call users_of,pgtest)" scripts/test.sh -shuffle=on -count=1 -timeout $(TIMEOUT) $(ARGS)

.PHONY: errors
errors: ## docs/errors.md, from what PostgreSQL 14 to 18 say (5 minutes; downloaded once)
	@for version in 14 15 16 17 18; do \
		bin=$$($(POSTGRES) -version $$version) && CDC_OUTBOX_PG_BIN=$$bin go test -count=1 ./internal/lab/errordocs -update || exit 1; \
	done

.PHONY: test-kafka
test-kafka: postgres kafka ## the tests that use Kafka, against Apache Kafka 4.4.0, or KAFKA=4.1.1 (downloaded once; needs Java 17, Maven)
	@CDC_OUTBOX_TEST_KAFKA=real CDC_OUTBOX_KAFKA_VERSION=$(KAFKA) GOTESTSUM="$(GOTESTSUM)" PACKAGES="$(call users_of,kafkatest)" scripts/test.sh -shuffle=on -count=1 -timeout $(TIMEOUT) -p 1 $(ARGS)

.PHONY: test-registry
test-registry: ## records by schema, with Apicurio's registry and Confluent's deserializer (a minute; downloaded once; needs Java 17, Maven, Python)
	@scripts/registry.sh test

.PHONY: test-debezium
test-debezium: ## records of the real Debezium against ours, on PostgreSQL 15 and 18, and its forms of each type against the recording that transform is tested with; ARGS=-update records (15 minutes; needs JDK 17, Maven)
	@for version in 15 18; do \
		bin=$$($(POSTGRES) -version $$version) && CDC_OUTBOX_PG_BIN=$$bin go test -count=1 -v -timeout $(TIMEOUT) -run '^TestE2E' ./tests/debezium $(ARGS) || exit 1; \
	done

.PHONY: test-docker
test-docker: ## both tiers with PostgreSQL, Apache Kafka, Redis and DynamoDB Local in containers (needs a Docker engine)
	@status=0; for tier in test test-e2e; do \
		CDC_OUTBOX_TEST_DOCKER=1 CDC_OUTBOX_TEST_KAFKA=real $(MAKE) --no-print-directory $$tier || status=1; \
	done; exit $$status

.PHONY: postgres
postgres: ## find PostgreSQL's binaries, or install them
	@$(POSTGRES) >/dev/null

.PHONY: dynamodb
dynamodb: ## download DynamoDB Local, where Java and Maven are; its tests are skipped otherwise
	@scripts/dynamodb.sh fetch >/dev/null || echo "tests that need DynamoDB run in Docker, or are skipped where Java or Maven is missing" >&2

# Not within a test, whose patience is for a start.
.PHONY: kafka
kafka: ## download Apache Kafka, where Java and Maven are, and prepare it for fast starts
	@CDC_OUTBOX_KAFKA_VERSION=$(KAFKA) scripts/kafka.sh fetch >/dev/null || echo "tests that need Apache Kafka run in Docker, or are skipped where Java or Maven is missing" >&2

.PHONY: chromium
chromium: ## find a Chromium, or install Debian's as root; the tests of the page are skipped otherwise
	@scripts/chromium.sh >/dev/null || echo "tests that need a browser are skipped" >&2

.PHONY: screenshots
screenshots: postgres chromium ## the pictures of the page in docs/, from real runs (4 minutes)
	@CDC_OUTBOX_SCREENSHOTS=$(CURDIR)/docs go test -count=1 -v -timeout $(TIMEOUT) -run '^TestE2EScreenshots$$' $(ARGS) ./internal/page

.PHONY: fuzz
fuzz: ## each fuzz test for FUZZTIME
	@scripts/fuzz.sh $(FUZZTIME) $(PKG)

.PHONY: soak
soak: postgres ## the broker down for 10 minutes, and a transaction of 1,000,000 rows
	@CDC_OUTBOX_SOAK=1 go test -count=1 -v -timeout 40m -run TestE2EBrokerOutDuringHugeTransaction $(ARGS) ./e2e

.PHONY: campaign
campaign: postgres ## exactly once on three Apache Kafka brokers, with N kills at random; LIMIT=70m; WHOLE=1 with transaction_boundaries; CDC_OUTBOX_SEED=… repeats one (needs Java 17, Maven)
	@CDC_OUTBOX_CAMPAIGN=$(or $(N),25) CDC_OUTBOX_CAMPAIGN_LIMIT=$(LIMIT) CDC_OUTBOX_CAMPAIGN_WHOLE=$(WHOLE) go test -count=1 -v -timeout 48h -run '^TestE2ECampaign$$' $(ARGS) ./e2e

.PHONY: fleet-campaign
fleet-campaign: postgres kafka ## a fleet of 100 pipelines on 5 processes, three Apache Kafka brokers, N disturbances at random; LIMIT=30m; DELIVERY=exactly_once for all; CDC_OUTBOX_SEED=… repeats one (needs Java 17, Maven)
	@CDC_OUTBOX_CAMPAIGN_FLEET=$(or $(N),60) CDC_OUTBOX_CAMPAIGN_LIMIT=$(LIMIT) CDC_OUTBOX_CAMPAIGN_DELIVERY=$(DELIVERY) go test -count=1 -v -timeout 48h -run '^TestE2EFleetCampaign$$' $(ARGS) ./e2e

.PHONY: shadow
shadow: postgres kafka ## a comparison with the real Debezium for FOR=1h, with kills of all parts (needs Java 17, Maven)
	@CDC_OUTBOX_SHADOW=$(or $(FOR),1h) go test -count=1 -v -timeout 48h -run '^TestE2EShadowThroughFaults$$' $(ARGS) ./e2e

.PHONY: tokens
tokens: postgres kafka ## connectors on tokens of a minute for FOR=1h, with sources that fail in all ways (needs Java 17, Maven)
	@CDC_OUTBOX_TOKENS=$(or $(FOR),1h) go test -count=1 -v -timeout 48h -run '^TestE2ETokensOfSeconds$$' $(ARGS) ./e2e

.PHONY: mutants
mutants: postgres ## programs with known mistakes: the end-to-end tests must find each
	@CDC_OUTBOX_MUTANTS=1 go test -count=1 -v -timeout 2h -run TestE2EMutants $(ARGS) ./e2e

.PHONY: upgrades
upgrades: kafka ## all drills of major upgrades of PostgreSQL (needs Python with pip, for pg_upgrade)
	@CDC_OUTBOX_UPGRADES=1 go test -count=1 -v -timeout 30m -run '^TestE2E(MajorUpgrade|BlueGreen)' $(ARGS) ./e2e

.PHONY: bench
bench: postgres ## throughput against pg_recvlogical's, the server's limit (5 minutes); ARGS="-scenarios all" (20 to 40 minutes)
	@go run -buildvcs=false ./bench/drain $(ARGS)

.PHONY: bench-retention
bench-retention: ## what deleting published rows costs those who wait for events (8 minutes)
	@go run -buildvcs=false ./bench/retention $(ARGS)

.PHONY: bench-debezium
bench-debezium: postgres ## against Debezium on Kafka Connect, with a real broker (15 minutes; needs Java 17, Maven); ARGS="-rounds 1 -rows 20000"
	@go run -buildvcs=false ./bench/debezium $(ARGS)

.PHONY: bench-delivery
bench-delivery: postgres ## exactly_once beside at_least_once, on one broker; ARGS="-brokers 3" (8 minutes; needs Java 17, Maven)
	@go run -buildvcs=false ./bench/debezium -modes delivery $(ARGS)

.PHONY: bench-repair
bench-repair: postgres kafka ## repair of 1,000 missing events among 5 million, against readers of the same (20 minutes; needs Java 17, Maven)
	@go run -buildvcs=false ./bench/repair $(ARGS)

.PHONY: bench-quarantine
bench-quarantine: postgres kafka ## what parked bad events cost the good ones (5 minutes; needs Java 17, Maven); ARGS="-delivery exactly_once"
	@go run -buildvcs=false ./bench/quarantine $(ARGS)

.PHONY: bench-pipelines
bench-pipelines: postgres ## 100 pipelines in one process against one pipeline (10 minutes); ARGS="-servers 5"
	@go run -buildvcs=false ./bench/pipelines $(ARGS)

.PHONY: bench-idempotency
bench-idempotency: ## what each store of the idempotency library costs, against its bare client
	@go run -buildvcs=false ./bench/idempotency $(ARGS)

.PHONY: tools
tools: ## download what the other targets compile and run
	@go list -deps -test work >/dev/null
	@cd examples/clients && GOWORK=off go list -deps ./... >/dev/null
	@$(HELM) version
	@$(GOTESTSUM) --version
	@$(GOLANGCI_LINT) version

.PHONY: vet
vet: ## go vet
	@go vet work

.PHONY: lint
lint: ## golangci-lint
	@$(GOLANGCI_LINT) run $(shell go list -m -f '{{.Dir}}/...')

.PHONY: workflows
workflows: ## check .github/workflows and .goreleaser.yaml
	@$(ACTIONLINT)
	@$(GORELEASER) check

.PHONY: vulnerabilities
vulnerabilities: ## known vulnerabilities in the code that ours calls
	@$(GOVULNCHECK) $(shell go list -m -f '{{.Dir}}/...')

.PHONY: tidy
tidy: ## go mod tidy for each module; VERSION=v0.2.0 is what they require of each other from then on
	@scripts/tidy.sh $(filter v%,$(VERSION))

.PHONY: update
update: ## the newest versions of what the modules require
	@scripts/tidy.sh update

.PHONY: propose
propose: ## what make update has changed, as a pull request: a workflow runs this each week
	@scripts/propose.sh

.PHONY: release
release: ## tag HEAD as the version in go.work, for each module; pushes nothing
	@scripts/release.sh

# The libraries are tagged on the same commit: the program's tag is told.
GORELEASE = GORELEASER_CURRENT_TAG=$(shell git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || echo v0.0.0) $(GORELEASER) release --clean

.PHONY: archives
archives: ## dist/: the archives of a release, as a trial; with SBOMs if syft is installed
	@$(GORELEASE) --snapshot $(if $(shell command -v syft),,--skip=sbom)

.PHONY: images
images: ## the images of a release, for amd64 and arm64; PUSH=1 pushes them
	@for target in cdc-outbox cdc-outbox-demo cdc-outbox-idempotency; do \
		docker buildx build --platform linux/amd64,linux/arm64 --target $$target --tag ghcr.io/cdc-outbox/$$target:$(RELEASE) \
			--build-arg VERSION=$(RELEASE) --build-arg COMMIT=$(COMMIT) $(if $(PUSH),--push --sbom=true --provenance=mode=max) . || exit 1; \
	done

# Its version is that of go.work, as a test holds.
CHART = cdc-outbox-$(shell sed -n 's/^version: \([^ ]*\).*/\1/p' deploy/helm/cdc-outbox/Chart.yaml).tgz

.PHONY: chart
chart: ## dist/: the Helm chart of a release; PUSH=1 pushes it
	@mkdir -p dist
	@$(HELM) package cdc-outbox --destination $(CURDIR)/dist
	@$(if $(PUSH),$(HELM) push $(CURDIR)/dist/$(CHART) oci://ghcr.io/cdc-outbox/charts)

.PHONY: publish
publish: ## archives, images and chart of the tagged commit, to GitHub: a workflow runs this
	@echo "$$GITHUB_TOKEN" | docker login ghcr.io --username "$$GITHUB_ACTOR" --password-stdin
	@docker buildx create --use
	@$(GORELEASE)
	@$(MAKE) --no-print-directory images PUSH=1
	@$(MAKE) --no-print-directory chart PUSH=1

.PHONY: docker
docker: ## the container image cdc-outbox:dev
	docker build --tag cdc-outbox:dev --build-arg VERSION=$(RELEASE) --build-arg COMMIT=$(COMMIT) .

.PHONY: clean
clean: ## what make made in this directory
	rm -rf bin dist .cache coverage.out
