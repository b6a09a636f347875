# The front door: every target sets up what it needs first, which takes no time where nothing is
# missing.

PREFIX ?= /usr/local
# Given to cargo by all targets, for example CARGO_FLAGS=--offline.
CARGO_FLAGS ?=
PYTHON = .tools/venv/bin/python
# A toolchain that rustup has just installed may not be in the PATH yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help demo test test-built test-bindings test-slow test-integrations gpu-check gpu-bundle lint bench bench-quick bench-build docs package install install-functions

help:
	@echo 'make demo       serve a table in one process, fetch it in another, compare'
	@echo 'make test       all tests but the slow ones'
	@echo 'make test-slow  sanitizers, fuzzing, loom (CONTRIBUTING.md says which)'
	@echo 'make test-integrations  the engines and plug-ins of integrations/'
	@echo 'make gpu-check  tests and figures that need a GPU; without one, over a fake driver'
	@echo 'make gpu-bundle  the same for a machine without cargo or compiler, into build/gpu-bundle'
	@echo 'make lint       format, clippy, documentation and its links, the APIs as stored, shell scripts'
	@echo 'make bench      libdipc beside its peers, into docs/benchmarks (half an hour; bench-quick: 3)'
	@echo 'make docs       the book with the references of all languages, into build/docs'
	@echo 'make package    Debian packages, a tarball, a Python wheel and recipes, into build/packages'
	@echo 'make install    into PREFIX ($(PREFIX))'
	@echo 'make install-functions  libdipc_functions, beside the libdipc of PREFIX'

# SCALE=1 makes the table six million rows.
demo:
	@tools/setup.sh build
	@cargo build $(CARGO_FLAGS) --locked --release --package libdipc-cli
	@tools/demo.sh target/release/dipc

# Many tests wait more than they work, so there are more of them at once than processors; for the same
# reason two kinds run at once. What is built behind the tests of cargo has their features, and those
# of what they alone need: nothing is built twice.
AS_TESTED = DIPC_CARGO_FLAGS='$(CARGO_FLAGS) --locked --workspace --all-features --tests'
BINDINGS = DIPC_PREFIX='$(CURDIR)/target/prefix' tools/with-newer-ucx.sh tools/test-bindings.sh
test:
	@tools/setup.sh test
	RUST_TEST_THREADS=$$(($$(nproc) * 2)) \
	  tools/with-newer-ucx.sh cargo test $(CARGO_FLAGS) --locked --workspace --all-features
	$(AS_TESTED) tools/test-bindings.sh install
	@$(MAKE) --no-print-directory --jobs=2 test-built test-bindings

# These two test the build of `test`, and take as long as each other.
test-built:
	$(AS_TESTED) tools/with-newer-ucx.sh tests/c/run.sh plain sample
	$(AS_TESTED) tests/packaging.sh
	$(BINDINGS) streams matrix
	bench/test.sh

test-bindings:
	$(BINDINGS) cpp go julia python quick-start

test-slow:
	@tools/setup.sh test
	@tools/setup.sh slow
	tools/test-slow.sh

test-integrations:
	@tools/setup.sh integrations
	CARGO_FLAGS='$(CARGO_FLAGS)' tools/test-integrations.sh

gpu-check:
	@tools/setup.sh test
	CARGO_FLAGS='$(CARGO_FLAGS)' tools/gpu-check.sh

gpu-bundle:
	@tools/setup.sh test
	CARGO_FLAGS='$(CARGO_FLAGS)' tools/gpu-bundle.sh build/gpu-bundle

lint:
	@tools/setup.sh lint
	tools/check_commits.sh
	cargo fmt --all --check
	cargo fmt --all --check --manifest-path integrations/Cargo.toml
	cargo metadata $(CARGO_FLAGS) --locked --format-version 1 --manifest-path integrations/Cargo.toml >target/integrations.json
	cargo clippy $(CARGO_FLAGS) --locked --workspace --all-targets --all-features -- -D warnings
	cargo clippy $(CARGO_FLAGS) --locked --lib -- -D warnings
	rm -rf target/doc/dipc
	RUSTDOCFLAGS='-D warnings' cargo doc $(CARGO_FLAGS) --locked --workspace --no-deps --lib --all-features
	python3 tools/rust_api.py
	tests/recipes.sh lint
	cargo test $(CARGO_FLAGS) --locked --workspace --all-features --test header
	mkdir -p build/docs/c build/docs/cpp && doxygen docs/Doxyfile && doxygen docs/Doxyfile.cpp
	python3 tools/check_links.py
	git ls-files -z '*.sh' .ci/run | xargs -0 shellcheck --severity=warning

# ARGUMENTS='--only REGEX' measures a part; python -m bench --help has more.
bench: bench-build
	$(PYTHON) -m bench --output docs/benchmarks $(ARGUMENTS)

# Not into the repository: two rounds of few cases are for a first look.
bench-quick: bench-build
	$(PYTHON) -m bench --quick --output build/bench $(ARGUMENTS)

bench-build:
	@tools/setup.sh bench
	cargo build $(CARGO_FLAGS) --locked --release --package libdipc-cli
	cargo bench $(CARGO_FLAGS) --locked --package libdipc --bench header --no-run
	@bench/peers/build.sh build/ucx_walk || echo 'bench: UCX alone is left out, for its program cannot be built here' >&2

docs:
	@tools/setup.sh docs
	tools/docs.sh

package:
	@tools/setup.sh package
	tools/package.sh build/packages
	tests/packages.sh build/packages

install:
	@tools/setup.sh build
	cmake -S . -B build -DCMAKE_BUILD_TYPE=Release '-DDIPC_CARGO_TARGET_DIR=$(CURDIR)/target'
	cmake --build build
	cmake --install build --prefix '$(PREFIX)'

install-functions:
	@tools/setup.sh build
	cmake -S integrations/functions/c -B build/functions -DCMAKE_BUILD_TYPE=Release '-DCMAKE_PREFIX_PATH=$(PREFIX)' \
	  '-DDIPC_CARGO_TARGET_DIR=$(CURDIR)/integrations/target'
	cmake --build build/functions
	cmake --install build/functions --prefix '$(PREFIX)'
