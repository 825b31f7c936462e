# make demo        photos through shared memory to Python workers; PEER=vllm: to vLLM's
#                  own reader, PEER=engine: through an HTTP server to a whole vLLM engine;
#                  PEER=encoder: two vLLM engines that share encoder outputs through the daemon;
#                  PEER=kv: two vLLM engines with LMCache that share the KV of a long prompt
# make test        everything but the real vLLM
# make test-pythons  the Python tests with Python 3.10 to 3.14 and the free-threaded 3.14: those that are found, or are
#                  packages of Debian; the last lines say which could not be had and why. PYTHONS="3.13 3.14": only these
# make wheel       wheels of the Python package with the command in them, for both processors, and the one for any machine, in dist
# make dist        all files of a release in dist, by goreleaser: the wheels, archives, deb, rpm, SBOMs, checksums (docs/releasing.md)
# make image       the daemon's container image as dist/ringcache.oci.tar, by docker buildx
# make test-dist   make dist twice, in two clones with a tag of their own: every file is the same; and go install of that tag
# make test-install  the wheels on a machine with nothing but Python: install, serve, a hit, top; on musl, too; ENGINE=1 with a vLLM engine
# make test-upgrade  daemons and packages of two versions, from two wheels: one takes the place of the other under load, and nothing is lost
# make test-arm64  a part of the core's tests as arm64 programs, under emulation (fetches qemu)
# make test-vllm   the interop suite against the real vLLM (makes its environment, 6 GB)
# make test-lmcache  LMCache's own tools and clients (lm://, Redis's protocol) against the daemon, its engine, look-up,
#                  configuration and events beside ours; LMCACHE_SOURCE=FOLDER is an unpacked source
#                  distribution, whose script and test are run, too
# make test-browser  the daemon's page in a headless Chromium (fetched from the distribution's packages; without one it says
#                  so and is skipped); BROWSER_ARGS are the test's: -busy 31m -images FOLDER makes the pictures of docs/page.md
# make e2e         whole vLLM engines behind package engine and beside the daemon (makes the same environment)
# make bench       the jobs of a cache beside the real vLLM and other peers: table, plots and raw
#                  samples in bench/results; BENCH_ARGS are bench/compare's options
# make bench-smoke the same with few sizes and rounds, printed as ratios
# make bench-gpu   copies from a registered ring to a GPU, beside PyTorch's and vLLM's; GPU_ARGS
#                  are bench/gpu's options. Status 2 where there is no GPU
# make bench-frontend  requests/s and CPU of the Go frontend beside vLLM's own
# make test-deploy the Helm chart, plain manifests and Compose files of deploy, by Helm's, Kubernetes' and Compose's
#                  own packages; the board for Grafana and the alerts, in Prometheus' own engine, at daemons with
#                  the faults that the alerts are for. The packages are fetched and built the first time
# make fuzz        every fuzz target for FUZZTIME
# make fuzz-vllm   rings, stores and caches beside the real vLLM, every release: 2,000,000
#                  operations with the newest, 500,000 with each older one
# make soak        the whole core under load and random kills for MINUTES, with Go and Python
#                  readers; SOAK_ARGS are internal/soak's options
# make attack      64 honest sessions of the daemon beside each greedy client in turn, for ATTACK: hit
#                  rate, time of a hit, the daemon's memory; status 1 beyond the bounds that docs/testing.md names
# make stress      the tests of PKG, COUNT times, to find those that fail now and then
# make mutate      deliberate bugs, one at a time, and the test that notices each; MUTATE_ARGS
#                  are scripts/mutate.py's options
# make cover       the statements of each package that its tests reach; COVER_ARGS are
#                  scripts/coverage.py's options

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

PEER ?= ringcache
FUZZTIME ?= 60s
MINUTES ?= 10
PKG ?= ./...
PYTHONS ?=
COUNT ?= 30
ATTACK ?= 10s
DEMO_ARGS ?=
SOAK_ARGS ?=
E2E_RUN ?= .
GPU_ARGS ?=
BENCH_ARGS ?=
MUTATE_ARGS ?=
COVER_ARGS ?=
BROWSER_ARGS ?=
ENGINE ?=
comma := ,

.PHONY: all build wheel dist image test-dist test-install test-upgrade demo test test-go test-python test-pythons test-arm64 lint test-vllm test-lmcache test-deploy test-browser e2e bench bench-smoke bench-gpu bench-frontend fuzz fuzz-vllm soak attack stress mutate cover pictures docs

all: build

build: bin/ringcache

.PHONY: bin/ringcache
bin/ringcache:
	CGO_ENABLED=0 go build -o $@ ./cmd/ringcache

# The program of a release. .goreleaser.yaml and deploy/Containerfile have the same flags, which a test compares.
GO_RELEASE := CGO_ENABLED=0 go build -trimpath -buildvcs=true -ldflags="-s -w"

wheel:
	for arch in amd64 arm64; do GOARCH=$$arch $(GO_RELEASE) -o bin/release/$$arch/ringcache ./cmd/ringcache; done
	scripts/release/wheel.sh dist bin/release/amd64/ringcache --pure
	scripts/release/wheel.sh dist bin/release/arm64/ringcache

dist:
	scripts/release/dist.sh

image:
	mkdir -p dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) docker buildx build -f deploy/Containerfile --target daemon --output type=oci,dest=dist/ringcache.oci.tar,rewrite-timestamp=true .

test-dist:
	scripts/test-dist.sh

test-install:
	scripts/test-install.sh $(if $(ENGINE),--engine)

test-upgrade:
	scripts/test-upgrade.sh

# The interpreter has what the workers import; with PEER=vllm that is the real vLLM.
demo:
	@if [ "$(PEER)" = engine ]; then exec interop/e2e/demo.sh $(DEMO_ARGS); fi; \
	if [ "$(PEER)" = encoder ]; then exec interop/e2e/encoder_demo.sh $(DEMO_ARGS); fi; \
	if [ "$(PEER)" = kv ]; then exec interop/e2e/kv_demo.sh $(DEMO_ARGS); fi; \
	if [ "$(PEER)" = vllm ]; then python=$$(scripts/progress.sh "the environment of vLLM" interop/setup.sh)/bin/python; \
	else python=$$(scripts/progress.sh "the Python environment" scripts/python-env.sh); fi; \
	scripts/progress.sh "building the demo" go build -o bin/demo ./examples/demo; \
	PYTHONPATH=python/src bin/demo --python "$$python" --peer "$(PEER)" $(DEMO_ARGS)

test: lint test-go test-python

LINT := go tool -modfile=$(CURDIR)/scripts/lint/go.mod golangci-lint run

lint:
	out=$$(gofmt -l .); test -z "$$out" || { gofmt -d .; exit 1; }
	for arch in amd64 arm64; do CGO_ENABLED=0 GOOS=linux GOARCH=$$arch go build ./...; done
	for os in darwin windows; do GOOS=$$os go build ./...; done # other systems compile, and report that they are unsupported
	for module in . bench scripts/oracle scripts/pictures examples/ringtest interop/browser; do (cd "$$module"; $(LINT) ./...); done # with the tag e2e; vet is one of the linters

# The race detector needs a C compiler, nothing else here does. It brings failpoints and invariants along.
RACE := $(shell command -v $${CC:-gcc} >/dev/null 2>&1 && echo -race)
CHECKS := $(or $(RACE),-tags failpoints$(comma)invariants)

test-go:
	@test -n "$(RACE)" || echo "no C compiler found: testing without the race detector"
	python3 scripts/test_gotest.py
	python3 scripts/test_mutate.py
	python3 scripts/site/test_links.py
	python3 scripts/release/test_notes.py
	scripts/mutate.py --check
	TEST_PYTHON=$$(scripts/python-env.sh) scripts/gotest.py $(CHECKS) -timeout 30m ./...
	test -z "$(RACE)" || scripts/gotest.py -timeout 30m -run 'TestTruncated|TestDamageOfEveryKind' ./objstore # what it can't do under the race detector
	scripts/gotest.py -timeout 30m -run 'Alloc|TestHitOf' ./serde ./shmstore ./objstore ./mmcache ./mmhash ./internal/blake3 ./kv # which the checks above would change
	test -z "$(RACE)" || scripts/gotest.py -timeout 30m -run '^TestAttacks$$|^TestKV' ./daemon/internal/daemontest # whose bounds of memory the race detector lifts
	test -z "$(RACE)" || scripts/gotest.py -timeout 30m ./tier/internal/volume # whose budgets of memory the race detector exceeds
	cd bench; ../scripts/gotest.py -timeout 30m ./...
	cd scripts/oracle; ../../scripts/gotest.py -timeout 30m ./...
	cd scripts/pictures; ../../scripts/gotest.py -timeout 30m ./...
	cd examples/ringtest; ../../scripts/gotest.py -timeout 30m ./...

test-python:
	python=$$(scripts/python-env.sh); cd python; "$$python" -m mypy; "$$python" -m pytest -q

test-pythons: bin/ringcache
	RINGCACHE_AGENT=$(CURDIR)/bin/ringcache scripts/pythons.py $(PYTHONS)

test-arm64:
	scripts/test-arm64.sh

test-vllm: bin/ringcache
	env=$$(interop/setup.sh); RINGCACHE_AGENT=$(CURDIR)/bin/ringcache "$$env/bin/python" -m pytest interop -q -rs; \
	cd python; PYTHONPATH=src "$$env/bin/python" -m pytest -q tests/test_vllm.py tests/test_pin_torch.py tests/test_plugin.py tests/test_encoder.py tests/test_offloading.py \
		tests/test_exchange.py tests/test_readme.py

test-lmcache: bin/ringcache
	env=$$(interop/setup.sh); for release in $$(interop/e2e/lmcache.sh); do echo "$${release%%=*}"; \
		PYTHONPATH=$${release#*=} RINGCACHE_AGENT=$(CURDIR)/bin/ringcache "$$env/bin/python" -m pytest interop/test_lmcache_tools.py interop/test_lmcache_engine.py interop/test_config.py interop/test_lmcache_directory.py interop/test_lookup.py interop/test_lm.py interop/test_resp.py -q -rs || exit 1; \
	done

test-deploy:
	cd deploy/check; $(LINT) ./...; ../../scripts/gotest.py -timeout 30m ./...
	cd daemon/internal/promtest; $(LINT) ./...; ../../../scripts/gotest.py --logs -count=1 -timeout 30m ./...

test-browser: bin/ringcache
	root=$$(scripts/fetch-chromium.sh) || { echo "skipped: there is no Chromium, see above"; exit 0; }; \
	cd interop/browser; RINGCACHE_TEST_CHROMIUM="$$root" ../../scripts/gotest.py --logs -count=1 -timeout 2h . -command $(CURDIR)/bin/ringcache $(BROWSER_ARGS)

# Engines one after the other: about 40 minutes for all of it.
e2e:
	scripts/gotest.py --logs -tags e2e -count=1 -timeout 120m -run '$(value E2E_RUN)' ./interop/e2e

# Redis comes with the libraries that it needs, unpacked from the distribution's packages; without them it is left out.
COMPARE = env=$$(interop/setup.sh); redis=$$(scripts/fetch-package.sh redis-server redis-tools libjemalloc2 liblzf1 libatomic1) || redis=; \
	cd bench; go run ./compare --python "$$env/bin/python" --redis "$$redis"

bench:
	$(COMPARE) --out results $(BENCH_ARGS)
	cd bench; go run ./eviction --tables traces --seeds 1 --requests 50000 --gib 1,2,4,8,16 --plots results > results/eviction.md
	cd bench; go run ./tiers --out results

bench-smoke:
	$(COMPARE) --smoke

bench-gpu:
	cd bench; go build -o ../bin/bench-gpu ./gpu
	PYTHONPATH=python/src bin/bench-gpu $(GPU_ARGS)

MODEL ?= llava
bench-frontend:
	env=$$(interop/e2e/setup.sh); \
	python3 interop/e2e/compare.py --python "$$(sed -n 's/^python=//p' <<<"$$env")" --model "$$(sed -n 's/^model_$(MODEL)=//p' <<<"$$env")" --model-kind $(MODEL)

fuzz:
	scripts/fuzz.sh $(FUZZTIME)

fuzz-vllm:
	scripts/fuzz-vllm.sh

# One summary line on stdout; status 1 if anything was lost, wrong, left behind, or grew.
soak:
	@go build -o bin/soak ./internal/soak
	@python=$$(scripts/python-env.sh); PYTHONPATH=python/src exec bin/soak --minutes $(MINUTES) --python "$$python" $(SOAK_ARGS)

attack:
	scripts/gotest.py --logs -count=1 -timeout 30m -run '^TestAttacks$$' ./daemon/internal/daemontest -attack $(ATTACK) -attack.sessions 64 -attack.rate 0.9 -attack.latency 200ms -attack.return 30s

stress:
	COUNT=$(COUNT) scripts/stress.sh $(PKG)

mutate:
	scripts/mutate.py $(MUTATE_ARGS)

cover:
	scripts/coverage.py $(COVER_ARGS)

pictures:
	cd scripts/pictures; go run . $(CURDIR)/docs/pictures
	go test ./inspect -run '^TestPictureOfASegment$$' -update-picture

docs:
	scripts/site/build.sh $(CURDIR)/bin/docs
