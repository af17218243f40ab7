# Everything that a person or a machine does with this checkout.
# Needs Go; PostgreSQL's programs are found on the machine or fetched once.

SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .bin
PROGRAM := $(BIN)/switchboard
LINT_VERSION := v2.5.0
TEST_FLAGS ?=
RUN_FLAGS ?=
SOAK ?= 15m
BENCH_JSON ?= bench.json
BENCH_FLAGS ?=
CROSS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

.PHONY: help run demo test lint cross e2e bench soak interop conformance build clean

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: ## the program, in .bin/
	@mkdir -p $(BIN)
	@test -x $(PROGRAM) || echo "building; the first time takes a minute or two" >&2
	@go build -o $(PROGRAM) ./cmd/switchboard

run: build ## one instance on http://127.0.0.1:8080 to look around in (RUN_FLAGS='--listen 127.0.0.1:9080')
	@$(PROGRAM) dev --dir .data $(RUN_FLAGS)

demo: build ## the whole loop between two fresh instances, over the wire
	@$(PROGRAM) demo

test: build ## every test, with the race detector, on a real PostgreSQL: minutes (TEST_FLAGS='-run Name')
	@$(PROGRAM) dev-postgres -- go test -race -timeout 9m $(TEST_FLAGS) ./...

lint: ## formatting, vet, and every linter of .golangci.yml
	@test -z "$$(gofmt -l cmd internal migrations specs)" || { echo "not gofmt'ed:"; gofmt -l cmd internal migrations specs; exit 1; }
	@go vet ./...
	@test -x $(BIN)/golangci-lint-$(LINT_VERSION) || { mkdir -p $(BIN); GOBIN=$(CURDIR)/$(BIN) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION) && mv $(BIN)/golangci-lint $(BIN)/golangci-lint-$(LINT_VERSION); }
	@$(BIN)/golangci-lint-$(LINT_VERSION) run --allow-parallel-runners ./...

interop: build ## official clients of other hands against an instance (npm brings theirs)
	@.ci/interop/run

conformance: ## the MCP project's suite against an endpoint (npm brings it)
	@.ci/conformance

cross: ## the program for other systems, without cgo (CROSS='linux/arm64')
	@for t in $(CROSS); do CGO_ENABLED=0 GOOS=$${t%/*} GOARCH=$${t#*/} go build -o /dev/null ./cmd/switchboard && echo "cross: $$t" || exit 1; done

e2e: build ## the pages in a real Chromium (CHROMIUM names it when it is not found), pictures kept in .shots/
	@$(PROGRAM) dev-postgres -- go test -tags e2e -count=1 -timeout 15m ./internal/web/e2e
	@SHOTS=$(CURDIR)/.shots/fixtures $(PROGRAM) dev-postgres -- go test -tags e2e -count=1 -timeout 10m -run TestLook ./internal/web

bench: ## the todo queue beside raw SQL and River: a table, and BENCH_JSON=file.json
	@mkdir -p $(BIN)
	@go build -o $(BIN)/switchboard-bench ./cmd/switchboard-bench
	@$(BIN)/switchboard-bench bench --json $(BENCH_JSON) $(BENCH_FLAGS)

soak: ## kill workers, servers and PostgreSQL under load for SOAK=15m, and check the history
	@mkdir -p $(BIN)
	@go build -o $(BIN)/switchboard-bench ./cmd/switchboard-bench
	@$(BIN)/switchboard-bench soak --length $(SOAK)

clean: ## what was built and what development kept
	@rm -rf $(BIN) .data .shots bench.json
