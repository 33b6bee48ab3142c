# The front door. Every target first sees to it that what it needs is installed.

PRESET ?= release
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)
PROMPT ?= wisdom
BUILD  := build/$(PRESET)
# What else a preset's compiler comes with.
ALSO   := $(if $(filter asan fuzz coverage,$(PRESET)),fuzz)

export NINJA_STATUS = [%f/%t %es] 
export CTEST_PARALLEL_LEVEL ?= $(JOBS)

.DEFAULT_GOAL := build
.PHONY: build test test-long test-clients demo bench gpu-test fuzz lint format install wheel clean help

build:
	@tools/setup.sh build $(ALSO)
	@tools/build.sh $(PRESET) $(JOBS)

test:
	@tools/setup.sh build python $(ALSO)
	@tools/build.sh $(PRESET) $(JOBS)
	@tools/test.sh $(PRESET)

test-long:
	@tools/test_long.sh $(JOBS) $(PARTS)

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
	@tools/configure.sh tidy
	@tools/lint.py --jobs $(JOBS) --changed build/tidy

format:
	@tools/setup.sh lint
	@tools/lint.py --format

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX) --strip

wheel:
	@tools/setup.sh build
	@tools/build.sh $(PRESET) $(JOBS) motley
	@tools/make_wheel.py --program $(BUILD)/motley --out $(BUILD)/wheel

clean:
	@rm -rf build
	@echo "removed build/ (.venv and the compiler cache stay)"

help:
	@echo "make           builds the program: $(BUILD)/motley"
	@echo "make test      builds it and passes every test (GPU tests apart)"
	@echo "make test-long takes hours: soaks, hostile times, clang-tidy over everything, thread sanitizer ... (PARTS=\"volume fuzz\", PARTS=today)"
	@echo "make test-clients  real clients (litellm, LangChain, lm-eval ...) against the server; installs 7 GB of them"
	@echo "make demo      one prompt through a little model and its five adapters at once (PROMPT=wisdom)"
	@echo "make bench     builds and runs the benchmarks"
	@echo "make gpu-test  the tests that need a GPU"
	@echo "make fuzz      fuzzes every parser for a minute each (SECONDS_EACH=60)"
	@echo "make lint      checks the format, the rules of the architecture, and clang-tidy over what changed"
	@echo "make format    formats all code"
	@echo "make install   installs the program under PREFIX=$(PREFIX)"
	@echo "make wheel     writes the Python package, with the program in it, to $(BUILD)/wheel"
	@echo "make clean     removes build/"
	@echo
	@echo "PRESET=release|debug|asan|tsan|cuda picks the build, JOBS=$(JOBS) how many at once."
