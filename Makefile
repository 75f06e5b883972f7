# Targets: all check bench demo install fuzz lint format clean (see `make help`)
#
# Set on the command line: BUILD=dir  SAN=address,undefined  CUDA=0  WERROR=1  V=1
# CFLAGS, CXXFLAGS, CPPFLAGS, LDFLAGS, CC and CXX are the user's; ours are in the hs_* variables.

.SUFFIXES:
.DELETE_ON_ERROR:
MAKEFLAGS += -rR
SHELL     := /bin/sh

ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin CXX),default)
CXX := $(if $(findstring clang,$(CC)),clang++,g++)
endif
ifeq ($(origin AR),default)
AR := ar
endif
PKG_CONFIG ?= pkg-config
CFLAGS     ?= -O2 -g
CXXFLAGS   ?= $(CFLAGS)
BUILD      ?= build$(if $(SAN),-$(subst $(comma),-,$(SAN)))
prefix     ?= /usr/local
bindir     ?= $(prefix)/bin
mandir     ?= $(prefix)/share/man
Q          := $(if $(V),,@)
comma      := ,

hs_cppflags := -I. -D_GNU_SOURCE
hs_common   := -pthread -fvisibility=hidden -ffp-contract=off -fno-math-errno -fno-trapping-math \
               -Wall -Wextra -Wshadow -Wundef -Wformat=2 -Wcast-qual -Wdouble-promotion -Wimplicit-fallthrough
hs_cflags   := -std=c11 $(hs_common) -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wwrite-strings
hs_cxxflags := -std=c++17 $(hs_common) -fno-exceptions -fno-rtti -fno-threadsafe-statics
hs_ldflags  := -pthread
WERROR      ?= 1
ifneq ($(WERROR),0)
hs_cflags   += -Werror
hs_cxxflags += -Werror
endif
ifdef SAN
hs_san      := -fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all
hs_cflags   += $(hs_san)
hs_cxxflags += $(hs_san)
hs_ldflags  += $(hs_san)
endif

# --- optional parts -------------------------------------------------------
NVCC ?= $(or $(shell command -v nvcc),$(wildcard /usr/local/cuda/bin/nvcc))
CUDA ?= $(if $(NVCC),1,0)
CUDA_ARCHS ?= 75 80 86 89 90
# Probes compile and link (\043 is '#', which make 4.3 unescapes differently).
probe   = $(shell printf '\043include <$(1)>\nint main(void){return 0;}\n' | $(CC) $(CPPFLAGS) -x c -o /dev/null - $(LDFLAGS) $(2) 2>/dev/null && echo 1)
archive := $(call probe,archive.h,-larchive)
jansson := $(call probe,jansson.h,-ljansson)
zlib    := $(call probe,zlib.h,-lz)
glpk    := $(call probe,glpk.h,-lglpk)
gsl     := $(call probe,gsl/gsl_statistics.h,-lgsl -lgslcblas)
cmocka  := $(call probe,stdarg.h>\n\043include <stddef.h>\n\043include <stdint.h>\n\043include <setjmp.h>\n\043include <cmocka.h,-lcmocka)

# --- sources --------------------------------------------------------------
formats_src := $(sort $(wildcard formats/*.c))
runtime_src := $(filter-out runtime/main.c runtime/cli.c runtime/device_nocuda.c,$(sort $(wildcard runtime/*.c)))
emu_src     := $(sort $(wildcard runtime/cuda/*.cu))
obj         = $(patsubst %,$(BUILD)/obj/%.o,$(basename $(1)))
# The device source twice: for the CPU in every build, by nvcc where there is one.
runtime_obj := $(call obj,$(runtime_src)) $(patsubst %.cu,$(BUILD)/obj/%.emu.o,$(emu_src))
ifeq ($(CUDA),1)
runtime_obj += $(patsubst %.cu,$(BUILD)/obj/%.cuda.o,$(emu_src))
cuda_home   := $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
cuda_libs   := -L$(cuda_home)/lib64 -lcudart_static -ldl -lrt
nvcc_flags  := -I. -O2 -lineinfo -std=c++17 --fmad=false -Xcompiler=-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-fvisibility=hidden,-Wall,-ffp-contract=off $(if $(filter 0,$(WERROR)),,-Werror all-warnings) $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a))
else
runtime_obj += $(call obj,runtime/device_nocuda.c)
endif
hs_ldlibs   := -larchive -ljansson -lz -lm

# program = directory, needed libraries
needs_solve   := $(glpk)
needs_profile := $(gsl)
tool_dirs   := convert quantize profile inspect perplexity tokenize $(if $(wildcard tools/bench/main.c),bench)
tool_names  := $(filter-out $(if $(gsl),,profile),$(foreach t,$(tool_dirs),$(if $(wildcard tools/$(t)/main.c),$(t))))
programs    := $(if $(wildcard runtime/main.c),$(BUILD)/bin/hotset-run) $(patsubst %,$(BUILD)/bin/hotset-%,$(tool_names)) \
               $(if $(glpk),$(if $(wildcard tools/solver/main.c),$(BUILD)/bin/hotset-solve))
tests       := $(patsubst tests/unit/%.c,%,$(sort $(wildcard tests/unit/*.c)))
fuzzers     := $(patsubst tests/fuzz/fuzz_%.c,%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))

ifneq ($(filter-out clean help deps,$(or $(MAKECMDGOALS),all)),)
ifneq ($(archive)$(jansson)$(zlib),111)
missing_libs := $(if $(archive),,libarchive-dev) $(if $(jansson),,libjansson-dev) $(if $(zlib),,zlib1g-dev)
endif
endif

all: $(if $(missing_libs),missing,$(programs))  ## build the programs and libraries
	@echo "cuda: $(if $(filter 1,$(CUDA)),$(NVCC),no (emu only))   glpk: $(if $(glpk),yes,no: hotset-solve is not built)   gsl: $(if $(gsl),yes,no: hotset-profile is not built)   tests: $(if $(cmocka),cmocka,no cmocka)"

missing:
	@echo "missing libraries: $(missing_libs); run scripts/deps, or install them" >&2; exit 1

# --- how things are built -------------------------------------------------
# The ISA files, and only they, get instruction-set flags.
$(BUILD)/obj/runtime/%_avx2.o:   hs_isa := -mavx2 -mfma -mf16c
# Parsers face hostile bytes: no silent narrowing there.
$(BUILD)/obj/formats/%.o:        hs_cflags += -Wconversion

# Rebuild everything when the flags change.
flags := $(CC) $(CXX) $(hs_cppflags) $(CPPFLAGS) $(hs_cflags) $(CFLAGS) $(CXXFLAGS) $(nvcc_flags)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D); echo '$(flags)' | cmp -s - $@ || echo '$(flags)' > $@

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(if $(V),,@echo "  CC    $<")
	$(Q)$(CC) $(hs_cppflags) $(CPPFLAGS) $(hs_cflags) $(hs_isa) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/obj/%.emu.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D)
	$(if $(V),,@echo "  EMU   $<")
	$(Q)$(CXX) $(hs_cppflags) $(CPPFLAGS) -DHS_CUDA_EMU $(hs_cxxflags) $(CXXFLAGS) -MMD -MP -c -o $@ -x c++ $<

$(BUILD)/obj/%.cuda.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D)
	$(if $(V),,@echo "  NVCC  $<")
	$(Q)$(NVCC) $(nvcc_flags) -MMD -MP -c -o $@ $<

$(BUILD)/libformats.a: $(call obj,$(formats_src))
$(BUILD)/libruntime.a: $(runtime_obj)
$(BUILD)/%.a:
	$(if $(V),,@echo "  AR    $@")
	$(Q)rm -f $@ && $(AR) rcs $@ $^

link = mkdir -p $(@D) && $(CC) $(hs_ldflags) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(1) $(hs_ldlibs) $(cuda_libs)
libs := $(BUILD)/libruntime.a $(BUILD)/libformats.a
cli  := $(call obj,runtime/cli.c)
$(BUILD)/bin/hotset-run: $(call obj,runtime/main.c) $(cli) $(libs)
	$(if $(V),,@echo "  LINK  $@")
	$(Q)$(call link)
define tool
$(BUILD)/bin/hotset-$(1): $(call obj,$(wildcard tools/$(2)/*.c)) $(cli) $(libs)
	$(if $(V),,@echo "  LINK  $$@")
	$$(Q)$$(call link,$(3))
endef
$(foreach t,$(filter-out profile,$(tool_dirs)),$(eval $(call tool,$(t),$(t),)))
$(eval $(call tool,profile,profile,-lgsl -lgslcblas))
$(eval $(call tool,solve,solver,-lglpk))
