# The front door: every target sets up what it needs first, which takes no time where nothing is
# missing.

PREFIX ?= /usr/local
# Given to cargo by all targets, for example CARGO_FLAGS=--offline.
CARGO_FLAGS ?=
PYTHON = .tools/venv/bin/python
# A toolchain that rustup has just installed may not be in the PATH yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help demo test test-slow lint install

help:
	@echo 'make demo       serve a table in one process, fetch it in another, compare'
	@echo 'make test       all tests but the slow ones'
	@echo 'make test-slow  sanitizers, fuzzing, loom (CONTRIBUTING.md says which)'
	@echo 'make lint       format, clippy, documentation, header, shell scripts'
	@echo 'make install    into PREFIX ($(PREFIX))'

# SCALE=1 makes the table six million rows.
demo:
	@tools/setup.sh build
	@cargo build $(CARGO_FLAGS) --locked --release --features cli --bin dipc
	@tools/demo.sh target/release/dipc

test:
	@tools/setup.sh test
	cargo test $(CARGO_FLAGS) --locked --all-features
	tests/c/run.sh plain valgrind
	tests/packaging.sh
	tools/test-python.sh $(PYTHON)
	DIPC_PYTHON=$(PYTHON) bindings/julia/test.sh

test-slow:
	@tools/setup.sh slow
	tools/test-slow.sh

lint:
	@tools/setup.sh lint
	cargo fmt --check
	cargo clippy $(CARGO_FLAGS) --locked --all-targets --all-features -- -D warnings
	cargo clippy $(CARGO_FLAGS) --locked --lib -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc $(CARGO_FLAGS) --locked --no-deps --lib
	cargo test $(CARGO_FLAGS) --locked --test header
	git ls-files -z '*.sh' .ci/run | xargs -0 shellcheck --severity=warning

install:
	@tools/setup.sh build
	cmake -S . -B build -DCMAKE_BUILD_TYPE=Release
	cmake --build build
	cmake --install build --prefix '$(PREFIX)'
