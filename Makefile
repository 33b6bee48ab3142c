# The front door. Every target first sees to it that what it needs is installed.

PRESET ?= release
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)
PROMPT ?= wisdom
BUILD  := build/$(PRESET)

export NINJA_STATUS = [%f/%t %es] 
export CTEST_PARALLEL_LEVEL ?= $(JOBS)

.DEFAULT_GOAL := build
.PHONY: build test test-clients demo bench gpu-test fuzz lint format install clean help

build:
	@tools/setup.sh build
	@tools/build.sh $(PRESET) $(JOBS)

test:
	@tools/setup.sh build python
	@tools/build.sh $(PRESET) $(JOBS)
	@ctest --preset $(PRESET)

test-clients:
	@tools/setup.sh build python clients
	@tools/build.sh release $(JOBS) motley
	@ctest --preset clients

demo:
	@tools/setup.sh build
	@tools/build.sh $(PRESET) $(JOBS) motley
	@tools/demo.sh $(BUILD)/motley "$(PROMPT)"

bench: build
	@tools/bench.sh $(BUILD)/bench

gpu-test:
	@tools/setup.sh build
	@tools/build.sh cuda $(JOBS)
	@ctest --preset gpu

fuzz:
	@tools/setup.sh build fuzz
	@tools/build.sh fuzz $(JOBS)
	@tools/fuzz.sh build/fuzz/fuzz

lint:
	@tools/setup.sh build lint
	@tools/build.sh release $(JOBS)
	@tools/lint.py --jobs $(JOBS) build/release

format:
	@tools/setup.sh lint
	@tools/lint.py --format

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX) --strip

clean:
	@rm -rf build
	@echo "removed build/ (.venv and the compiler cache stay)"

help:
	@echo "make           builds the program: $(BUILD)/motley"
	@echo "make test      builds it and passes every test (GPU tests apart)"
	@echo "make test-clients  real clients (litellm, LangChain, lm-eval ...) against the server; installs 7 GB of them"
	@echo "make demo      one prompt through a little model and its five adapters at once (PROMPT=wisdom)"
	@echo "make bench     builds and runs the benchmarks"
	@echo "make gpu-test  the tests that need a GPU"
	@echo "make fuzz      fuzzes every parser for a minute each (SECONDS_EACH=60)"
	@echo "make lint      checks the format, the rules of the architecture, and clang-tidy"
	@echo "make format    formats all code"
	@echo "make install   installs the program under PREFIX=$(PREFIX)"
	@echo "make clean     removes build/"
	@echo
	@echo "PRESET=release|debug|asan|tsan|cuda picks the build, JOBS=$(JOBS) how many at once."
