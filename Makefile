# make            build remat, libremat.a, libremat.so     make help      every target
ifeq ($(origin CC),default)
CC      = gcc
endif
BUILD  ?= build
WARN    = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
          -Wcast-qual -Wvla -Wundef -Wconversion -Wno-sign-conversion -Wframe-larger-than=8192 -Werror
# -ffp-contract=off: clang 14 fuses a*b+c by itself even with -std=c11. Never -ffast-math: one answer.
FLOAT   = -ffp-contract=off
CFLAGS ?= -O2 -g
ALL     = -std=c11 -D_GNU_SOURCE $(WARN) $(FLOAT) $(CFLAGS) $(SAN) -fPIC -fvisibility=hidden \
          -Iinclude -Isrc -Itests -MMD -MP
LDLIBS  = -lpcre2-8 -lm -lpthread

SRC  := $(filter-out src/app/%,$(wildcard src/*/*.c src/*/*/*.c))
APP  := $(wildcard src/app/*.c)
OBJ  := $(SRC:%.c=$(BUILD)/%.o)
AOBJ := $(APP:%.c=$(BUILD)/%.o)
UNIT := $(patsubst tests/unit/%.c,%,$(wildcard tests/unit/test_*.c))
PROG := $(UNIT) $(patsubst tests/%.c,%,$(wildcard tests/same/test_*.c tests/budget/test_*.c tests/fault/test_*.c)) kerncheck/kerncheck
HELP := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/*.c))

all: remat libremat.a libremat.so ## build remat, libremat.a and libremat.so

# The only objects with wider instructions; scripts/lint proves it.
X2   = -mavx2 -mfma -mf16c
X512 = $(X2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
$(patsubst %.c,$(BUILD)/%.o,$(wildcard src/kernels/x86/avx2*.c)):   ISA = $(X2)
$(patsubst %.c,$(BUILD)/%.o,$(wildcard src/kernels/x86/avx512*.c)): ISA = $(X512)

$(BUILD)/%.o: %.c Makefile
	@mkdir -p $(@D)
	@echo "cc   $<"; $(CC) $(ALL) $(ISA) -c -o $@ $<

$(BUILD)/libremat.a: $(OBJ)
	@rm -f $@ && ar rcs $@ $^
$(BUILD)/libremat.so: $(OBJ)
	$(CC) $(SAN) -shared -o $@ $^ $(LDLIBS)
$(BUILD)/remat: $(AOBJ) $(BUILD)/libremat.a
	$(CC) $(SAN) -o $@ $^ $(LDLIBS)
remat libremat.a libremat.so: %: $(BUILD)/%
	@cp -f $< $@

# Test programs: one per source file with logic, and one per promise. Helpers are tests/*.c.
TESTOBJ = $(if $(SAN),$(filter-out %/no_malloc.o,$(HELP)),$(HELP))
$(BUILD)/tests/%: $(BUILD)/tests/%.o $(BUILD)/libremat.a $(HELP)
	$(CC) $(SAN) -o $@ $< $(TESTOBJ) $(BUILD)/libremat.a $(LDLIBS)
TESTBIN := $(UNIT:%=$(BUILD)/tests/unit/%) $(patsubst %,$(BUILD)/tests/%,$(filter-out $(UNIT),$(PROG)))

-include $(OBJ:.o=.d) $(AOBJ:.o=.d) $(HELP:.o=.d) $(TESTBIN:%=%.d)
.PHONY: all
.SECONDARY:
