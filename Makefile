# `make help` lists the targets.
#
# Set on the command line: BUILD=dir  SAN=address,undefined  CUDA=0  WERROR=0  V=1  DESTDIR= prefix=
# CFLAGS, CXXFLAGS, CPPFLAGS, LDFLAGS, CC and CXX are the user's; ours are in the hs_* variables.

.SUFFIXES:
.DELETE_ON_ERROR:
MAKEFLAGS += -rR
SHELL     := /bin/sh

ifneq ($(filter default undefined,$(origin CC)),)
CC := gcc
endif
ifneq ($(filter default undefined,$(origin CXX)),)
CXX := $(if $(findstring clang,$(CC)),clang++,g++)
endif
ifneq ($(filter default undefined,$(origin AR)),)
AR := ar
endif
CFLAGS     ?= -O2 -g
CXXFLAGS   ?= $(CFLAGS)
BUILD      ?= build$(if $(SAN),-$(subst $(comma),-,$(SAN)))
prefix     ?= /usr/local
bindir     ?= $(prefix)/bin
libdir     ?= $(prefix)/lib
includedir ?= $(prefix)/include
mandir     ?= $(prefix)/share/man
Q          := $(if $(V),,@)
comma      := ,

hs_cppflags := -I. -D_GNU_SOURCE
hs_common   := -pthread -fvisibility=hidden -ffp-contract=off -fno-math-errno -fno-trapping-math \
               -Wall -Wextra -Wshadow -Wundef -Wformat=2 -Wcast-qual -Wdouble-promotion -Wimplicit-fallthrough \
               -Wno-missing-field-initializers
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
# clang's function check needs the C++ library, which nothing here links.
hs_cxxflags += $(hs_san) $(if $(findstring clang,$(CXX)),-fno-sanitize=function)
hs_ldflags  += $(hs_san)
endif

# --- optional parts -------------------------------------------------------
NVCC ?= $(or $(shell command -v nvcc),$(wildcard /usr/local/cuda/bin/nvcc))
CUDA ?= $(if $(NVCC),1,0)
# Code for one GPU of each generation runs on its later ones; what comes after the last translates
# the PTX that goes with it.  The toolkit says which it can do.
cuda_can   := $(if $(NVCC),$(patsubst sm_%,%,$(shell $(NVCC) --list-gpu-code 2>/dev/null)))
CUDA_ARCHS ?= $(filter $(cuda_can),75 80 90 100 120)
cuda_last  := $(lastword $(CUDA_ARCHS))
# Probes compile and link (\043 is '#', which make 4.3 unescapes differently).
probe   = $(shell printf '\043include <$(1)>\nint main(void){return 0;}\n' | $(CC) $(CPPFLAGS) -o /dev/null -x c - -x none $(LDFLAGS) $(2) 2>/dev/null && echo 1)
archive := $(call probe,archive.h,-larchive)
jansson := $(call probe,jansson.h,-ljansson)
zlib    := $(call probe,zlib.h,-lz)
glpk    := $(call probe,glpk.h,-lglpk)
gsl     := $(call probe,gsl/gsl_statistics.h,-lgsl -lgslcblas)
# MPI for hotset-profile: found through its compiler wrapper; MPI=0 leaves it out.
MPICC       ?= mpicc
mpi_cflags  := $(patsubst -I%,-isystem%,$(filter -I%,$(shell $(MPICC) --showme:compile 2>/dev/null)))
mpi_ldlibs  := $(shell $(MPICC) --showme:link 2>/dev/null)
MPI         ?= $(shell printf '\043include <mpi.h>\nint main(void){return MPI_Finalize();}\n' | $(CC) $(mpi_cflags) -o /dev/null -x c - -x none $(LDFLAGS) $(mpi_ldlibs) 2>/dev/null && echo 1)
mpi         := $(filter 1,$(MPI))
cmocka  := $(call probe,stdarg.h>\n\043include <stddef.h>\n\043include <stdint.h>\n\043include <setjmp.h>\n\043include <cmocka.h,-lcmocka)

# --- sources --------------------------------------------------------------
formats_src := $(sort $(wildcard formats/*.c))
# Linked into programs, not into the library.
cli_src     := runtime/cli.c runtime/cli_help.c runtime/cli_talk.c runtime/cli_value.c runtime/cli_outdir.c runtime/cli_page.c
runtime_src := $(filter-out runtime/main.c $(cli_src) runtime/device_nocuda.c,$(sort $(wildcard runtime/*.c)))
emu_src     := $(sort $(wildcard runtime/cuda/*.cu))
obj         = $(patsubst %,$(BUILD)/obj/%.o,$(basename $(1)))
# The device source twice: for the CPU in every build, by nvcc where there is one.
runtime_obj := $(call obj,$(runtime_src)) $(patsubst %.cu,$(BUILD)/obj/%.emu.o,$(emu_src))
ifeq ($(CUDA),1)
runtime_obj += $(patsubst %.cu,$(BUILD)/obj/%.cuda.o,$(emu_src))
cuda_home   := $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
cuda_libs   := -L$(cuda_home)/lib64 -lcudart_static -ldl -lrt
nvcc_flags  := -I. -O2 -lineinfo -std=c++17 --fmad=false -Xcompiler=-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-fvisibility=hidden,-Wall,-ffp-contract=off $(if $(filter 0,$(WERROR)),,-Werror all-warnings) $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) -gencode arch=compute_$(cuda_last),code=compute_$(cuda_last) --threads 2
else
runtime_obj += $(call obj,runtime/device_nocuda.c)
endif
hs_ldlibs   := -larchive -ljansson -lz -lm

# Each folder of tools/ is a program (its main.c) and an archive (its other files, which tests
# link too).  The program of tools/solver is hotset-solve.
tool_dirs    := $(sort $(patsubst tools/%/,%,$(dir $(wildcard tools/*/*.c))))
libs_profile := -lgsl -lgslcblas $(if $(mpi),$(mpi_ldlibs))
libs_solver  := -lglpk
# One of the two is built.
off_src      := tools/profile/ranks_$(if $(mpi),one,mpi).c
unbuilt      := $(if $(gsl),,profile) $(if $(glpk),,solver)
built_dirs   := $(filter-out $(unbuilt),$(tool_dirs))
program      = $(BUILD)/bin/hotset-$(if $(filter solver,$(1)),solve,$(1))
programs     := $(if $(wildcard runtime/main.c),$(BUILD)/bin/hotset-run) \
                $(foreach t,$(built_dirs),$(if $(wildcard tools/$(t)/main.c),$(call program,$(t))))
mans         := $(wildcard runtime/*.1 $(patsubst %,tools/%/*.1,$(built_dirs)))
tool_libs    := $(patsubst %,$(BUILD)/libtool-%.a,$(built_dirs))
tool_ldlibs  := $(foreach t,$(built_dirs),$(libs_$(t)))

# Tests of a tool that is not built are not built either.
tests_all   := $(patsubst tests/unit/%.c,%,$(sort $(wildcard tests/unit/*.c)))
tests_off   := $(foreach t,$(unbuilt),$(patsubst tests/unit/%.c,%,$(shell grep -l '"tools/$(t)/' tests/unit/*.c 2>/dev/null)))
tests       := $(if $(cmocka),$(filter-out $(tests_off),$(tests_all)))
fuzzers     := $(patsubst tests/fuzz/fuzz_%.c,%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))
benches     := $(patsubst tests/bench/bench_%.c,%,$(sort $(wildcard tests/bench/bench_*.c)))
# Helpers of the command-line tests: a file or a folder each.
gens        := $(sort $(patsubst tests/gen/%.c,%,$(wildcard tests/gen/*.c)) $(patsubst tests/gen/%/main.c,%,$(wildcard tests/gen/*/main.c)))

missing_libs := $(if $(archive),,libarchive-dev) $(if $(jansson),,libjansson-dev) $(if $(zlib),,zlib1g-dev)
missing_libs := $(strip $(missing_libs))

all: $(if $(missing_libs),missing,$(programs))  ## build the programs
	@echo "cuda: $(if $(filter 1,$(CUDA)),$(NVCC),no (emu only))   glpk: $(if $(glpk),yes,no: hotset-solve is not built)   gsl: $(if $(gsl),yes,no: hotset-profile is not built)   mpi: $(if $(mpi),yes,no)   cmocka: $(if $(cmocka),yes,no: unit tests are not built)"

missing:
	@echo "missing libraries: $(missing_libs); run scripts/deps, or install them" >&2; exit 1

# --- how things are built -------------------------------------------------
# The ISA files, and only they, get instruction-set flags.
# On another machine than x86-64 they are empty.
ifneq ($(findstring x86_64,$(shell $(CC) -dumpmachine)),)
hs_isa_all := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mfma -mf16c
$(BUILD)/obj/runtime/%_avx2.o:   hs_isa := -mavx2 -mfma -mf16c
$(BUILD)/obj/runtime/%_avx512.o: hs_isa := $(hs_isa_all)
endif
# Parsers face hostile bytes: no silent narrowing there.
$(BUILD)/obj/formats/%.o:        hs_cflags += -Wconversion
$(BUILD)/obj/tools/profile/ranks_mpi.o: hs_cppflags += $(mpi_cflags)

# Rebuild everything when the flags change, the archives when a source file comes or goes.
flags := $(CC) $(CXX) $(hs_cppflags) $(CPPFLAGS) $(hs_cflags) $(CFLAGS) $(CXXFLAGS) $(nvcc_flags)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D); echo '$(flags)' | cmp -s - $@ || echo '$(flags)' > $@
sources := $(runtime_obj) $(formats_src) $(filter-out $(off_src),$(wildcard tools/*/*.c))
$(BUILD)/sources: FORCE
	@mkdir -p $(@D); echo '$(sources)' | cmp -s - $@ || echo '$(sources)' > $@

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(if $(V),,@echo "  CC    $<")
	$(Q)$(CC) $(hs_cppflags) $(CPPFLAGS) $(hs_cflags) $(hs_isa) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/obj/%.emu.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D)
	$(if $(V),,@echo "  EMU   $<")
	$(Q)$(CXX) $(hs_cppflags) $(CPPFLAGS) -DHS_CUDA_EMU $(hs_cxxflags) $(CXXFLAGS) -MMD -MP -c -o $@ -x c++ $<

$(BUILD)/obj/%.race.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D)
	$(if $(V),,@echo "  RACE  $<")
	$(Q)$(CXX) $(hs_cppflags) $(CPPFLAGS) -DHS_CUDA_EMU -DHS_EMU_RACE=1 -fsanitize=thread $(hs_cxxflags) $(CXXFLAGS) -MMD -MP -c -o $@ -x c++ $<

$(BUILD)/obj/%.cuda.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D)
	$(if $(V),,@echo "  NVCC  $<")
	$(Q)$(NVCC) $(nvcc_flags) -MMD -MP -c -o $@ $<

$(BUILD)/libformats.a: $(call obj,$(formats_src))
$(BUILD)/libruntime.a: $(runtime_obj)
$(BUILD)/libcli.a: $(call obj,$(cli_src))
$(foreach t,$(tool_dirs),$(eval $(BUILD)/libtool-$(t).a: $(call obj,$(filter-out %/main.c $(off_src),$(sort $(wildcard tools/$(t)/*.c))))))
# What a program outside this tree links: both layers in one archive.
$(BUILD)/libhotset.a: $(call obj,$(formats_src)) $(runtime_obj)
$(BUILD)/%.a: $(BUILD)/sources
	$(if $(V),,@echo "  AR    $@")
	$(Q)rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)

link = mkdir -p $(@D) && $(CC) $(hs_ldflags) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) -Wl,--as-needed $(1) $(hs_ldlibs) $(cuda_libs)
say_link = $(if $(V),,@echo "  LINK  $@")
libs := $(BUILD)/libruntime.a $(BUILD)/libformats.a
cli  := $(BUILD)/libcli.a
$(BUILD)/bin/hotset-run: $(call obj,runtime/main.c) $(cli) $(libs)
	$(say_link)
	$(Q)$(call link)
define tool
$(call program,$(1)): $(call obj,tools/$(1)/main.c) $(BUILD)/libtool-$(1).a $(cli) $(libs)
	$$(say_link)
	$$(Q)$$(call link,$(libs_$(1)))
endef
$(foreach t,$(tool_dirs),$(eval $(call tool,$(t))))

# --- tests ----------------------------------------------------------------
# A test that needs link flags of its own has a line "/* LDFLAGS: -Wl,--wrap=malloc */".
own_ldflags = $$(sed -n 's|^/\* LDFLAGS: \(.*\) \*/$$|\1|p' $(1))
$(BUILD)/tests/%: $(BUILD)/obj/tests/unit/%.o $(tool_libs) $(cli) $(libs)
	$(say_link)
	$(Q)$(call link,-lcmocka $(tool_ldlibs) $(call own_ldflags,tests/unit/$*.c))
# The tests of the device once more under the detector of runtime/cuda/emu_race.h: their kernels
# and the device's are compiled with the calls of the thread sanitizer, which emu_race.c answers.
# A sanitizer of the user's has those calls for itself.
race_tests := $(if $(SAN),,$(filter test_emu test_device%,$(tests)))
race_obj   := $(patsubst %.cu,$(BUILD)/obj/%.race.o,$(emu_src)) $(BUILD)/obj/runtime/cuda/emu_race.o
$(BUILD)/race/%: $(BUILD)/obj/tests/unit/%.o $(race_obj) $(tool_libs) $(cli) $(libs)
	$(say_link)
	$(Q)$(call link,-lcmocka $(tool_ldlibs) $(call own_ldflags,tests/unit/$*.c))
$(foreach t,$(patsubst tests/unit/%.cu,%,$(wildcard tests/unit/*.cu)),$(eval $(BUILD)/race/$(t): $(BUILD)/obj/tests/unit/$(t).race.o))
# A test with kernels of its own has them in a .cu beside it.
$(foreach t,$(patsubst tests/unit/%.cu,%,$(wildcard tests/unit/*.cu)),$(eval $(BUILD)/tests/$(t): $(BUILD)/obj/tests/unit/$(t).emu.o))
$(BUILD)/fuzz-regress/%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(BUILD)/obj/tests/fuzz/regress.o $(libs)
	$(say_link)
	$(Q)$(call link)
$(BUILD)/bench/%: $(BUILD)/obj/tests/bench/bench_%.o $(tool_libs) $(cli) $(libs)
	$(say_link)
	$(Q)$(call link,$(tool_ldlibs))
define gen
$(BUILD)/gen/$(1): $(call obj,$(or $(wildcard tests/gen/$(1).c),$(wildcard tests/gen/$(1)/*.c))) $(libs)
	$$(say_link)
	$$(Q)$$(call link)
endef
$(foreach g,$(gens),$(eval $(call gen,$(g))))

# A high-entropy address layout is more than the thread sanitizer of gcc 12 can map.
aslr_off := $(if $(findstring thread,$(SAN)),$(shell setarch -R true 2>/dev/null && echo setarch -R))
limit    := $(if $(SAN),1800,600)
unit_list = for t in $(tests); do echo "$(limit) unit/$$t $(aslr_off) $(BUILD)/tests/$$t"; done; \
            for t in $(race_tests); do echo "$(limit) race/$$t $(BUILD)/race/$$t"; done; \
            for f in $(fuzzers); do echo "$(limit) fuzz/$$f $(aslr_off) $(BUILD)/fuzz-regress/$$f tests/fuzz/corpus/$$f/*"; done
make_list = for t in $(1); do echo "$(limit) $$t $(MAKE) --no-print-directory $$t"; done
test_programs := $(addprefix $(BUILD)/tests/,$(tests)) $(addprefix $(BUILD)/race/,$(race_tests)) $(addprefix $(BUILD)/fuzz-regress/,$(fuzzers))

# Newcomers type no -j.
jobs = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
check:  ## install what is missing, build, and run every test
	@scripts/deps
	@+$(MAKE) $(jobs) --no-print-directory check-run
check-run: all $(test_programs) $(addprefix $(BUILD)/gen/,$(gens))
	@{ $(unit_list); \
	   HS_LIST=1 HS_TIMEOUT=$(limit) HS_RUN='$(aslr_off)' tests/cli/run.sh $(BUILD); \
	   $(call make_list,check-layers check-isa check-man check-ptxas); } | HS_SAN='$(SAN)' scripts/run-tests $(BUILD)/logs
check-fast: all $(test_programs)  ## unit tests, fuzz corpora and layers only
	@{ $(unit_list); $(call make_list,check-layers); } | scripts/run-tests $(BUILD)/logs
threaded := $(filter $(patsubst tests/unit/%.c,%,$(shell grep -l 'hs_pool_new\|n_threads\|pthread' tests/unit/*.c)),$(tests))
check-threads: $(addprefix $(BUILD)/tests/,$(threaded))  ## the unit tests that start threads, for SAN=thread
	@for t in $(threaded); do echo "$(limit) unit/$$t $(aslr_off) $(BUILD)/tests/$$t"; done | scripts/run-tests $(BUILD)/logs
check-cli: all $(addprefix $(BUILD)/gen/,$(gens))  ## command-line tests only; T=name for one
	@HS_TIMEOUT=$(limit) HS_RUN='$(aslr_off)' HS_SAN='$(SAN)' tests/cli/run.sh $(BUILD) $(T)

# formats must link alone; runtime must link on formats alone; every symbol carries our prefix
# (but what a sanitizer adds).
check-layers: $(libs)  ## archives use lower layers only and export hs_ symbols only
	@echo 'int main(void) { return 0; }' > $(BUILD)/empty.c
	@$(CC) $(hs_ldflags) -o $(BUILD)/layer1 $(BUILD)/empty.c -Wl,--whole-archive $(BUILD)/libformats.a -Wl,--no-whole-archive $(hs_ldlibs)
	@$(CC) $(hs_ldflags) -o $(BUILD)/layer2 $(BUILD)/empty.c -Wl,--whole-archive $(BUILD)/libruntime.a -Wl,--no-whole-archive $(BUILD)/libformats.a $(cuda_libs) $(hs_ldlibs)
	@! nm -g --defined-only $(libs) | awk '$$2 ~ /[TDRBC]/ && $$3 !~ /^(hs_|__odr_asan)/ {print}' | grep . || { echo "symbols without the hs_ prefix"; exit 1; }
	@echo "layers ok"

# One binary for every x86-64: no wide registers outside the ISA files.
isa_obj := $(filter-out %_avx2.o %_avx512.o %.cuda.o,$(call obj,$(formats_src) $(cli_src)) $(runtime_obj)) $(tool_libs)
check-isa: $(isa_obj)  ## no ymm or zmm register outside the files for them
	@! objdump -d --no-show-raw-insn $(isa_obj) | grep -E -m 5 '%[yz]mm' || { echo "wide registers outside *_avx2.c and *_avx512.c"; exit 1; }
	@echo "isa ok"

check-ptxas:  ## no spills and no local memory in the device kernels (needs nvcc)
	@scripts/check-ptxas '$(if $(filter 1,$(CUDA)),$(NVCC))'

gpu_needs := all $(addprefix $(BUILD)/tests/,test_device test_device_ffn test_device_attn test_hybrid) \
             $(addprefix $(BUILD)/bench/,device hybrid) $(addprefix $(BUILD)/gen/,model placement)
DEVICE ?= cuda
check-gpu: $(gpu_needs)  ## what the emulation proves, on a real GPU; DEVICE=emu runs the same checks without one
	@scripts/check-gpu $(BUILD) $(DEVICE)
bench-gpu: $(gpu_needs)  ## figures of a real GPU, as tables
	@scripts/bench-gpu $(BUILD) $(DEVICE)

check-man: $(programs)  ## the man page of every program names every option of its --help
	@scripts/check-man $(programs)

# --- benchmarks, demonstration, fuzzing -----------------------------------
bench: all $(addprefix $(BUILD)/bench/,$(benches))  ## run the benchmarks
	@for b in $(benches); do echo "== $$b"; $(BUILD)/bench/$$b || exit 1; done
	@for s in $(sort $(wildcard tests/bench/*.sh)); do echo "== $$s"; sh $$s $(BUILD) || exit 1; done

demo:  ## install what is missing, build, and run the whole pipeline on data/
	@scripts/deps
	@+$(MAKE) $(jobs) --no-print-directory all
	@scripts/demo $(BUILD)

# The library again for libFuzzer, under $(BUILD)/fuzzing.
fuzz:  ## build the libFuzzer targets with clang; FUZZ_SECONDS=N also runs each for N seconds
	@+$(MAKE) --no-print-directory BUILD=$(BUILD)/fuzzing CC=clang CXX=clang++ CUDA=0 SAN=fuzzer-no-link,address,undefined fuzz-programs
	@for f in $(if $(FUZZ_SECONDS),$(fuzzers)); do mkdir -p $(BUILD)/fuzzing/found/$$f && \
	    $(BUILD)/fuzzing/bin/$$f -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=1024 -verbosity=0 -print_final_stats=1 \
	    -artifact_prefix=$(BUILD)/fuzzing/$$f- $(BUILD)/fuzzing/found/$$f tests/fuzz/corpus/$$f || exit 1; done
	@echo "fuzz targets in $(BUILD)/fuzzing/bin: $(fuzzers)"
fuzz-programs: $(addprefix $(BUILD)/bin/,$(fuzzers))
$(addprefix $(BUILD)/bin/,$(fuzzers)): $(BUILD)/bin/%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(libs)
	$(say_link)
	$(Q)$(call link,-fsanitize=fuzzer)

# --- installation ---------------------------------------------------------
version := $(shell sed -n 's/^.define HS_VERSION "\(.*\)"/\1/p' runtime/hotset.h)
define pkgconfig
prefix=$(prefix)
Name: hotset
Description: runs ReLU-sparse language models split between CPU and GPU by neuron
Version: $(version)
Cflags: -I$(includedir)/hotset
Libs: -L$(libdir) -lhotset $(hs_ldlibs) $(cuda_libs) -pthread
endef
export pkgconfig
install: all $(BUILD)/libhotset.a  ## programs, man pages and library under $(DESTDIR)$(prefix)
	install -d $(DESTDIR)$(bindir) $(DESTDIR)$(mandir)/man1 $(DESTDIR)$(libdir)/pkgconfig \
	    $(DESTDIR)$(includedir)/hotset/formats $(DESTDIR)$(includedir)/hotset/runtime
	install -m 755 $(programs) $(DESTDIR)$(bindir)
	install -m 644 $(mans) $(DESTDIR)$(mandir)/man1
	install -m 644 $(BUILD)/libhotset.a $(DESTDIR)$(libdir)
	install -m 644 runtime/hotset.h $(DESTDIR)$(includedir)/hotset/runtime
	install -m 644 formats/err.h $(DESTDIR)$(includedir)/hotset/formats
	@echo "$$pkgconfig" > $(DESTDIR)$(libdir)/pkgconfig/hotset.pc

# --- style ----------------------------------------------------------------
headers := $(sort $(wildcard formats/*.h runtime/*.h tools/*/*.h))
c_files := $(sort $(wildcard formats/*.c runtime/*.c tools/*/*.c tests/*/*.c tests/gen/*/*.c))
styled  := $(headers) $(c_files) $(sort $(wildcard runtime/cuda/* tests/*/*.h tests/gen/*/*.h))
lint:  ## headers stand alone in C and C++; clang-tidy; formatting
	@for h in $(headers); do \
	    $(CC) $(hs_cppflags) -std=c11 -Wall -Wextra -Wno-missing-field-initializers -fsyntax-only -x c $$h && \
	    $(CXX) $(hs_cppflags) -std=c++17 -Wall -Wextra -Wno-missing-field-initializers -fsyntax-only -x c++ $$h || exit 1; done
	@clang-format --dry-run -Werror $(styled)
	@printf '%s\n' $(filter-out tests/% $(off_src),$(c_files)) | xargs -P $$(nproc) -n 1 sh -c 'clang-tidy --quiet "$$@" -- $(hs_cppflags) $(mpi_cflags) -std=c11 $(hs_isa_all) 2>/dev/null' tidy
	@echo "lint ok"
format:  ## clang-format in place
	clang-format -i $(styled)

deps:  ## install the Debian packages that are missing
	@scripts/deps
help:  ## this text
	@awk -F'  ## ' '/^[a-z-]+:.*  ## /{split($$1,t,":"); printf "  %-12s %s\n", t[1], $$2}' $(firstword $(MAKEFILE_LIST))
clean:  ## remove $(BUILD)
	rm -rf $(BUILD)
FORCE:
.PHONY: all missing check check-run check-fast check-threads check-cli check-layers check-isa check-man check-ptxas check-gpu bench-gpu bench demo \
        fuzz fuzz-programs install lint format deps help clean FORCE
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
