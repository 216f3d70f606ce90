# make            build remat, libremat.a, libremat.so     make help      every target
ifeq ($(origin CC),default)
CC      = gcc
endif
BUILD  ?= build
# Sanitizers put red zones into frames and make gcc see paths that are not there: what they add is
# reported and not fatal.
WARN    = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
          -Wcast-qual -Wvla -Wundef -Wconversion -Wno-sign-conversion \
          $(if $(SAN),,-Wframe-larger-than=8192 -Werror)
# -ffp-contract=off: clang 14 fuses a*b+c by itself even with -std=c11. Never -ffast-math: one answer.
FLOAT   = -ffp-contract=off
CFLAGS ?= -O2 -g
ALL     = -std=c11 -D_GNU_SOURCE $(WARN) $(FLOAT) $(CFLAGS) $(SAN) -fPIC -fvisibility=hidden \
          -Iinclude -Isrc -Itests -MMD -MP
LDLIBS  = -lpcre2-8 -lutf8proc -luring -lm -lpthread
# The program alone: line editing, reading JSON.
APPLIBS = -ledit -ljansson
PREFIX ?= /usr/local

SRC  := $(filter-out src/app/%,$(wildcard src/*/*.c src/*/*/*.c))
APP  := $(wildcard src/app/*.c)
OBJ  := $(SRC:%.c=$(BUILD)/%.o)
AOBJ := $(APP:%.c=$(BUILD)/%.o)

# Test programs: one per source file with logic, and one per promise. Helpers are tests/*.c.
PROG := $(patsubst %.c,%,$(wildcard tests/*/test_*.c)) tests/kerncheck/kerncheck
FUZZ := $(patsubst %.c,%,$(filter-out %/standalone.c,$(wildcard tests/fuzz/*.c)))
HELP := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/*.c))
TEXT := $(wildcard include/*.h src/*/*.[ch] src/*/*/*.[ch] tests/*.[ch] tests/*/*.[ch])

all: remat libremat.a libremat.so ## build remat, libremat.a and libremat.so

# The only objects with wider instructions; scripts/lint proves it.
X2   = -mavx2 -mfma -mf16c
XVNNI = $(X2) -mavxvnni
X512 = $(X2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
XAMX = $(X512) -mamx-tile -mamx-int8
$(patsubst %.c,$(BUILD)/%.o,$(wildcard src/kernels/x86/avx2*.c)):   ISA = $(X2)
$(patsubst %.c,$(BUILD)/%.o,$(wildcard src/kernels/x86/avx2_vnni*.c)): ISA = $(XVNNI)
$(patsubst %.c,$(BUILD)/%.o,$(wildcard src/kernels/x86/avx512*.c)): ISA = $(X512)
$(patsubst %.c,$(BUILD)/%.o,$(wildcard src/kernels/x86/amx*.c)):    ISA = $(XAMX)

$(BUILD)/%.o: %.c Makefile
	@mkdir -p $(@D)
	@echo "cc   $<"; $(CC) $(ALL) $(ISA) -c -o $@ $<

$(BUILD)/libremat.a: $(OBJ)
	@rm -f $@ && ar rcs $@ $^
$(BUILD)/libremat.so: $(OBJ)
	@echo "link $@"; $(CC) $(SAN) -shared -o $@ $^ $(LDLIBS)
$(BUILD)/remat: $(AOBJ) $(BUILD)/libremat.a
	@echo "link $@"; $(CC) $(SAN) -o $@ $^ $(APPLIBS) $(LDLIBS)
remat libremat.a libremat.so: %: $(BUILD)/%
	@cp -f $< $@

# --- tests ----------------------------------------------------------------------------------------

# Sanitizers take malloc's name themselves.
TESTOBJ  = $(if $(SAN),$(filter-out %/no_malloc.o,$(HELP)),$(HELP))
PROGBIN := $(PROG:%=$(BUILD)/%)
FUZZBIN := $(FUZZ:%=$(BUILD)/%)
SCRIPT  := $(wildcard tests/cli/*.py tests/http/*.py)
MODELSET = $(shell grep -lE 'models/' tests/*/test_*.c tests/cli/*.py tests/models/*.py 2>/dev/null)

# Links through a temporary name: a build that runs beside this one never sees half a program.
$(PROGBIN): $(BUILD)/tests/%: $(BUILD)/tests/%.o $(BUILD)/libremat.a $(HELP)
	@echo "link $@"; $(CC) $(SAN) -o $@.new $< $(filter $(AOBJ),$^) $(TESTOBJ) $(BUILD)/libremat.a $(LDLIBS) && mv $@.new $@
# Parts of the program that stand alone are tested alone.
$(BUILD)/tests/unit/test_chat_parts: $(patsubst %,$(BUILD)/src/app/%.o,think talk words)
$(BUILD)/tests/unit/test_eval_parts: $(patsubst %,$(BUILD)/src/app/%.o,logprobs divergence haystack)
$(BUILD)/tests/fuzz/logprobs: $(BUILD)/src/app/logprobs.o
$(BUILD)/tests/unit/test_plot: $(patsubst %,$(BUILD)/src/app/%.o,child plot plot_axis plot_layout plot_script)
$(FUZZBIN): $(BUILD)/tests/fuzz/%: $(BUILD)/tests/fuzz/%.o $(BUILD)/tests/fuzz/standalone.o $(BUILD)/libremat.a
	@echo "link $@"; $(CC) $(SAN) -o $@ $^ $(LDLIBS)

# What times a part alone: make build/bench/stream.
$(BUILD)/bench/%: $(BUILD)/bench/%.o $(BUILD)/libremat.a
	@echo "link $@"; $(CC) $(SAN) -o $@ $^ $(LDLIBS)

RUN = REMAT=$(BUILD)/remat scripts/test $(if $(SAN),-t 1200 --without-models,-t 300) $(TESTFLAGS) $(if $(T),-k '$(T)')

test: ## set up, build, run all tests; T=pattern selects
	@scripts/setup build test
	@$(MAKE) --no-print-directory test-run

# The same without the set-up: for other compilers and sanitizers.
test-run: $(PROGBIN) $(FUZZBIN) $(BUILD)/remat
	@$(RUN) $(PROGBIN) $(FUZZBIN) $(SCRIPT)

test-models: ## fetch the models (MODEL=smollm2|gemma3|qwen) and run the tests that need them
	@scripts/setup build test models
	@scripts/models $(MODEL)
	@$(MAKE) --no-print-directory test-models-run
test-models-run: $(PROGBIN) $(BUILD)/remat
	@$(RUN) $(patsubst tests/%.c,$(BUILD)/tests/%,$(MODELSET))

# --- running it -------------------------------------------------------------------------------------

demo: ## set up, fetch SmolLM2, build, and answer one question in less and less memory: a table
	@scripts/setup build models
	@scripts/models smollm2
	@$(MAKE) --no-print-directory all
	@scripts/demo

models: ## fetch real models into models/, checked by SHA-256; MODEL=smollm2|gemma3|qwen: just one
	@scripts/setup models
	@scripts/models $(MODEL)

bench: ## time the kernels, then remat; SAVE=1 keeps it, BASE=commit compares, PLOT=FILE.svg draws
	@scripts/setup build bench
	@$(MAKE) --no-print-directory all $(BUILD)/tests/kerncheck/kerncheck
	@$(BUILD)/tests/kerncheck/kerncheck -b
	@bench/tokenizer.py
	@bench/speed.py $(if $(SAVE),--save) $(if $(BASE),--base $(BASE)) $(if $(PLOT),--plot '$(PLOT)')

# --- checks: what CI runs, runnable at home ----------------------------------------------------------

ASAN = BUILD=build/asan CFLAGS='-O1 -g -DRM_DEBUG -DRM_SANITIZED' \
       SAN='-fsanitize=address,undefined -fno-sanitize-recover=all'
TSAN = BUILD=build/tsan CFLAGS='-O1 -g -DRM_DEBUG -DRM_SANITIZED' SAN=-fsanitize=thread
COVER = BUILD=build/coverage CFLAGS='-O1 -g --coverage -DRM_SANITIZED' SAN=--coverage

check: ## format, lint, headers, clang, ASan+UBSan, TSan, short fuzzing
	@scripts/setup build test check
	@scripts/check format-check lint headers clang asan tsan fuzz

clang: ## the tests, built by clang
	@$(MAKE) --no-print-directory BUILD=build/clang CC=clang test-run
asan: ## the tests under AddressSanitizer and UBSan
	@$(MAKE) --no-print-directory $(ASAN) test-run
# The sanitizer's own memory map does not bear the largest address randomization of newer kernels.
tsan: ## the tests under ThreadSanitizer
	@$(MAKE) --no-print-directory $(TSAN) TESTFLAGS=--fixed-addresses test-run

FUZZNAMES = $(if $(F),$(F),$(notdir $(FUZZ)))
FUZZBUILD = build/fuzz
SECONDS  ?= 60
fuzz: ## libFuzzer with ASan and UBSan; F=gguf: one target, SECONDS=60 each
	@$(MAKE) --no-print-directory BUILD=$(FUZZBUILD) CC=clang CFLAGS='-O1 -g -DRM_DEBUG -DRM_SANITIZED' \
	    SAN='-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all' \
	    $(FUZZNAMES:%=$(FUZZBUILD)/fuzz/%)
	@scripts/fuzz $(FUZZBUILD) $(SECONDS) $(FUZZNAMES)
# The parsers alone: clang takes minutes to instrument the kernels, which read nothing untrusted.
PARSERS := $(foreach part,base gguf text,$(filter $(BUILD)/src/$(part)/%,$(OBJ))) \
           $(BUILD)/src/cache/session_file.o $(BUILD)/src/app/logprobs.o
$(BUILD)/fuzz/%: $(BUILD)/tests/fuzz/%.o $(PARSERS)
	@mkdir -p $(@D)
	@echo "link $@"; $(CC) $(SAN) -fsanitize=fuzzer -o $@ $^ $(LDLIBS)

format: ## clang-format 14, in place
	clang-format -i $(TEXT)
format-check: ## say what make format would change
	@clang-format --dry-run -Werror $(TEXT)

man: remat ## write commands and options into docs/man/remat.1; a test compares them
	@scripts/man

lint: $(BUILD)/libremat.a ## the rules a compiler does not know: layers, bans, symbols, stray AVX
	@scripts/lint $(BUILD)
lint-report: ## functions over 70 lines: each needs a reason
	@scripts/lint --long-functions

# Each public header compiles alone, as C11 and as C++.
headers: ## include/remat.h alone, as C11 and C++
	@for h in include/*.h; do for l in "c -std=c11" "c++ -std=c++11"; do \
	  echo "#include \"$$h\"" | $(CC) -x $$l -Wall -Wextra -Wpedantic -Werror -I. -fsyntax-only - || exit 1; \
	done; done

analyze: ## clang-tidy, at zero findings
	@scripts/setup check
	@scripts/analyze $(SRC) $(APP)

coverage: ## which lines the tests run
	@$(MAKE) --no-print-directory $(COVER) test-run
	@scripts/coverage build/coverage

# --- the rest -----------------------------------------------------------------------------------------

install: all ## into PREFIX (default /usr/local); DESTDIR is honoured
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib $(DESTDIR)$(PREFIX)/include
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 755 remat $(DESTDIR)$(PREFIX)/bin/remat
	install -m 644 docs/man/remat.1 $(DESTDIR)$(PREFIX)/share/man/man1/remat.1
	install -m 644 libremat.a $(DESTDIR)$(PREFIX)/lib/libremat.a
	install -m 755 libremat.so $(DESTDIR)$(PREFIX)/lib/libremat.so
	install -m 644 include/remat.h $(DESTDIR)$(PREFIX)/include/remat.h

clean: ## remove what was built; models/ stays
	rm -rf build remat libremat.a libremat.so

help: ## this list
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

-include $(OBJ:.o=.d) $(AOBJ:.o=.d) $(HELP:.o=.d) $(PROGBIN:%=%.d) $(FUZZBIN:%=%.d) $(BUILD)/tests/fuzz/standalone.d
.PHONY: all test test-run test-models test-models-run demo models bench check clang asan tsan fuzz \
        format format-check man lint lint-report headers analyze coverage install clean help
.SECONDARY:
