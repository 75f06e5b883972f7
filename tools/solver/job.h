#ifndef HS_TOOLS_SOLVER_JOB_H
#define HS_TOOLS_SOLVER_JOB_H

/* One run of hotset-solve: what was asked for, what was read, and the plan that comes of it. */

#include "formats/activation.h"
#include "formats/machine.h"
#include "formats/placement.h"
#include "runtime/cli.h"
#include "runtime/model.h"
#include "tools/solver/baseline.h"
#include "tools/solver/cost.h"
#include "tools/solver/latency.h"
#include "tools/solver/plan.h"
#include "tools/solver/solve.h"

typedef struct hs_job_options {
    hs_cli cli;
    const char *model, *profile, *output, *kv_type, *objective, *solver, *machine;
    uint64_t budget;
    int64_t context, group, min_neurons, batch;
    double gap, time_limit;
    bool has_budget, dry_run, plain, strict;
    char found[4096];                             /* the profile beside the model */
    const char *report;                           /* a folder, or NULL */
    const char *device_memory;                    /* a list of sizes, or NULL */
    uint32_t n_devices;                           /* 0: one, with the budget */
    uint64_t device_budget[HS_PLACEMENT_DEVICES]; /* of several */
} hs_job_options;

typedef struct hs_job hs_job;
struct hs_job {
    const hs_job_options *o;
    hs_model *model;
    hs_model_info info;
    hs_activation *profile;
    hs_machine *machine;   /* NULL: none was given */
    hs_cost cost;          /* with a machine */
    int32_t **order;       /* [n_layer][n_ff]: neurons, the hottest first; one block at order[0] */
    uint32_t *min_neurons; /* [n_layer]: none, or at least so many */
    hs_plan_costs costs;
    hs_placement *plan;
    hs_solve_result result;                /* of the latency objective: picoseconds saved */
    double cpu_s;                          /* of the latency objective: a step on the CPU */
    double step_s[HS_N_BASELINES], plan_s; /* with a machine: of a step */
    hs_placement *base[HS_N_BASELINES];    /* theirs, for a report; owned */
    bool latency;
    uint32_t device;  /* which of the machine's */
    hs_job *of;       /* [n_devices]: of several, what each makes of its layers; owned */
    uint8_t *belongs; /* [n_layer + 1]: whose a layer, and last the head, is; owned */
};

/* Read the model, its profile and the machine, and make the plan with its ledger. */
HS_NODISCARD hs_status hs_job_load(hs_job *j, hs_err *err);
HS_NODISCARD hs_status hs_job_plan(hs_job *j, hs_err *err);
/* The steps of hs_job_plan for one device: an empty plan with all costs; the plan itself. */
HS_NODISCARD hs_status hs_job_prepare(hs_job *j, hs_err *err);
HS_NODISCARD hs_status hs_job_solve(hs_job *j, hs_err *err);
/* hs_job_plan for several. */
HS_NODISCARD hs_status hs_job_devices(hs_job *j, hs_err *err);
/* Bytes of n neurons of layer l; `model` is the hs_model. */
uint64_t hs_job_neurons(void *model, uint32_t l, uint32_t n);
hs_latency_problem hs_job_latency(const hs_job *j);
hs_solve_params hs_job_params(const hs_job *j);
/* The neurons of layers that are j's, and what they are worth, for `capacity` bytes. */
HS_NODISCARD hs_status hs_job_state(const hs_job *j, uint64_t capacity, hs_solve_problem **out,
                                    hs_err *err);
/* What a job for one of several devices, or one that shares the rest, has of its own. */
void hs_job_part_fini(hs_job *j);
void hs_job_fini(hs_job *j);

#endif
