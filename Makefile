# kbpf: `make` alone lists the targets. Every target does the set-up that it needs.
.DEFAULT_GOAL := help
BIN := .venv/bin
# Kernel tests build worlds of their own and may run side by side; more workers than cores only blur the timings.
WORKERS ?= $(shell nproc)
PYTEST := $(BIN)/pytest
# Tests with a target of their own, which builds what they need.
APART := parity or cluster or image or release or deb or chart

.PHONY: help setup cluster-tools demo check test test-unit test-kernel test-parity test-cluster test-cluster-control
.PHONY: test-this-kernel test-without-ebpf test-vm
.PHONY: bench bench-datapath bench-iptables bench-control bpf
.PHONY: golden clean image-rootfs image-constraints test-image
.PHONY: changelog release-check deb test-deb test-chart test-distributions
.PHONY: e2e-tools e2e e2e-short e2e-swap e2e-scale e2e-shell e2e-daemonset

help:
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## distribution packages (as root) and the virtual environment
	@scripts/setup.sh

cluster-tools: setup ## the real kube-proxy and API server, from their Go modules (once: ten minutes)
	@tests/cluster/build.sh

demo: setup ## a toy node, both datapaths, real requests: what was balanced where (root)
	$(BIN)/kbpf demo

check: setup ## lint, format, types, layers, the layout of maps in C against Python (root for the last)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	find bpf tests/programs -name '*.[ch]' | xargs --no-run-if-empty $(BIN)/clang-format --dry-run --Werror
	$(PYTEST) --quiet tests/kernel/ebpf/test_layout_btf.py

test: setup ## every test without other projects' programs: unit, properties, contract, scenarios, kernel (root, minutes)
	$(PYTEST) -m 'not ($(APART))' --numprocesses=$(WORKERS) --dist=loadscope --ignore=tests/bench

test-unit: setup ## what needs no root and no network (seconds)
	$(PYTEST) -m 'not root and not ($(APART))' --ignore=tests/bench

test-kernel: setup ## real namespaces, sockets, programs and rules (root)
	$(PYTEST) -m 'root and not ($(APART))' --numprocesses=$(WORKERS) --dist=loadscope --ignore=tests/bench

test-this-kernel: setup ## of these what depends on the kernel: each hook and program, both datapaths (root)
	$(PYTEST) $(or $(TESTS),-m kernels tests/kernel tests/scenarios/test_scenarios.py) --numprocesses=$(WORKERS) --dist=loadscope

test-without-ebpf: setup ## what a machine does that cannot run eBPF; KBPF_LACKS says why it cannot (root)
	$(PYTEST) -m kernels tests/kernel/test_without_ebpf.py tests/scenarios/test_scenarios.py::TestIptables

test-vm: setup ## that on other kernels, in virtual machines; KERNELS=6.1,6.12,… or all; writes docs/kernels.md (root)
	@scripts/setup.sh qemu-system-x86 mmdebstrap busybox-static e2fsprogs xz-utils zstd git debian-archive-keyring
	if command -v vagrant >/dev/null; then cd vagrant && vagrant validate --ignore-provider; fi
	vagrant/run --report "$(or $(KERNELS),default)"

test-parity: setup cluster-tools ## kbpf's iptables rules against those of the real kube-proxy (root, minutes)
	$(PYTEST) -m parity tests/parity tests/cluster --numprocesses=$(WORKERS) --dist=loadscope --ignore=tests/bench

test-cluster: setup cluster-tools ## kbpf fed by a real API server: churn, crashes, compaction, daemons (root, minutes)
	$(PYTEST) -m cluster tests/cluster

test-cluster-control: setup cluster-tools ## its end-to-end cases with the real kube-proxy (root, minutes)
	KBPF_CLUSTER_PROXIES=kube-proxy,kube-proxy $(PYTEST) -m cluster tests/cluster/e2e

e2e-tools: setup
	@scripts/setup.sh gcc libc6-dev mmdebstrap nftables procps curl openssl
	@tests/cluster/build.sh --nodes

e2e: e2e-tools ## Kubernetes' own network tests on a cluster of kubelets, with kube-proxy and kbpf (root, hours)
	$(BIN)/python -m tests.e2e run

e2e-short: e2e-tools ## of these the conformance tests of Services and Networking, with kbpf alone (root, minutes)
	$(BIN)/python -m tests.e2e short

e2e-swap: e2e-tools ## proxies swapped under load on that cluster: connections tried and lost (root, minutes)
	$(BIN)/python -m tests.e2e swap

e2e-daemonset: e2e-tools image-rootfs ## kbpf as its DaemonSet there, each overlay: applied, tested, rolled out, deleted (root, minutes)
	$(BIN)/python -m tests.e2e daemonset

e2e-scale: e2e-tools ## as e2e-short, with 2,000 other Services in the cluster (root, minutes)
	$(BIN)/python -m tests.e2e scale

e2e-shell: e2e-tools ## that cluster, to play with, until Ctrl-C (root)
	$(BIN)/python -m tests.e2e shell

bench: ## what a Service costs a connection, in ratios to the pod itself (root, minutes)
	@scripts/setup.sh gcc libc6-dev
	$(BIN)/python -m tests.bench.datapath --without-kube-proxy

bench-datapath: cluster-tools ## the same beside the real kube-proxy, node ports from outside too: pass or fail (root)
	@scripts/setup.sh gcc libc6-dev
	$(BIN)/python -m tests.bench.datapath

bench-iptables: cluster-tools ## kbpf's iptables rules against the real kube-proxy; SIZES="1000 5000" (root, minutes)
	$(BIN)/python -m tests.bench.iptables $(if $(SIZES),--services $(SIZES))

bench-control: cluster-tools ## a large cluster, eBPF beside kube-proxy, pass or fail; SIZE=1000 (root, half an hour)
	$(BIN)/python -m tests.bench.control $(if $(SIZE),--services $(SIZE))

bpf: setup ## compile the programs, load them, and let the kernel verify each (root)
	$(PYTEST) tests/kernel/ebpf/test_loading.py

golden: setup ## rewrite the golden files from what the code renders now
	$(PYTEST) -m 'not root and not ($(APART))' --ignore=tests/bench --update-golden

ROOTFS ?= build/rootfs

image-rootfs: setup ## the image's root file system, without a container engine (root)
	@scripts/setup.sh mmdebstrap
	deploy/image/rootfs.sh $(ROOTFS)

image-constraints: setup ## the versions in the image become those of .venv
	$(BIN)/python deploy/image/constraints.py >deploy/image/constraints.txt

test-image: image-rootfs ## kbpf inside that file system, with the rights and mounts of the DaemonSet (root)
	$(PYTEST) -m image tests/image

changelog: setup ## what the next release changes for operators, from changelog.d/
	$(BIN)/towncrier build --draft

release-check: setup ## wheel and sdist: complete, equal whenever they are built, working alone; versions; changelog (minutes)
	@scripts/setup.sh git
	$(PYTEST) -m release tests/release
	$(PYTEST) --quiet tests/unit/test_versions.py

deb: setup ## the Debian package for this distribution, in build/deb
	@scripts/setup.sh debhelper
	deploy/debian/build.sh build/deb

test-deb: deb ## that package on a minimal system: installed, serving with the unit's rights, purged (root)
	@scripts/setup.sh mmdebstrap
	$(PYTEST) -m deb tests/debian

test-chart: cluster-tools ## the Helm chart: equal to the kustomizations, taken by a real API server (root)
	@tests/chart/build.sh
	$(PYTEST) -m chart tests/chart

test-distributions: setup ## every test in Debian 12, Debian 13 and Ubuntu 24.04; DISTRIBUTIONS="trixie", TARGET=test-unit (root, an hour)
	@scripts/setup.sh mmdebstrap
	$(BIN)/python -m tests.distributions $(DISTRIBUTIONS) $(if $(TARGET),--target=$(TARGET))

clean: ## remove the environment and every cache
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
