/* hotset-profile: how often each neuron is active.  Four ways to a profile (a model and texts,
 * a PowerInfer folder, a sum of profiles, a file to show), one way out. */
#include "formats/activation.h"
#include "runtime/cli.h"
#include "runtime/hotset.h"
#include "tools/profile/count.h"
#include "tools/profile/machine.h"
#include "tools/profile/print.h"
#include "tools/profile/ptdir.h"
#include "tools/profile/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct options {
    const char *model, *out, *export_pt, *import_pt, *show, *report, *imatrix;
    hs_strings texts, merge;
    const char *magnitude;
    int64_t n_ctx, chunks, positions, autosave, generate, coactivation;
    bool resume, machine;
    hs_ranks *ranks;
} options;

/* The option given that only texts can answer. */
static const char *for_texts(const options *o)
{
    return o->n_ctx          ? "-c"
           : o->chunks       ? "--chunks"
           : o->generate     ? "--generate"
           : o->coactivation ? "--coactivation"
           : o->magnitude    ? "--magnitude"
           : o->resume       ? "--resume"
           : o->imatrix      ? "--imatrix"
                             : NULL;
}

/* What belongs to which way; everything else is a usage error. */
static int check_options(const hs_cli *cli, const options *o)
{
    const int ways = (o->texts.n > 0) + (o->merge.n > 0) + (o->import_pt != NULL) +
                     (o->show != NULL) + o->machine;
    if (ways != 1)
        return hs_cli_usage(cli,
                            ways ? "choose one of -i, --merge, --import-pt, --show and --machine"
                                 : "needs texts (-i), --merge, --import-pt, --show or --machine");
    const bool run = o->texts.n > 0;
    if (run && !o->model)
        return hs_cli_usage(cli, "-i needs a model (-m)");
    if (!run && for_texts(o))
        return hs_cli_usage(cli, "%s is for texts (-i)", for_texts(o));
    if (o->positions && !o->import_pt)
        return hs_cli_usage(cli, "--positions is for --import-pt");
    if (o->model && (o->merge.n || o->show || o->machine))
        return hs_cli_usage(cli, "%s takes no model",
                            o->show      ? "--show"
                            : o->machine ? "--machine"
                                         : "--merge");
    if (o->machine && (o->report || o->export_pt))
        return hs_cli_usage(cli, "--machine has no profile to report or export");
    if (o->show && (o->out || o->export_pt))
        return hs_cli_usage(cli, "--show writes no file");
    if (!o->show && !o->out)
        return hs_cli_usage(cli, "needs an output (-o)");
    if (o->imatrix && o->resume)
        return hs_cli_usage(cli, "--imatrix needs all chunks in one run: leave --resume out");
    if (o->imatrix && hs_ranks_count(o->ranks) > 1)
        return hs_cli_usage(cli, "--imatrix is for one process, not for several under mpirun");
    if (!run && hs_ranks_count(o->ranks) > 1)
        return hs_cli_usage(cli, "only texts (-i) are shared by several processes");
    return -1;
}

/* ---- outputs -------------------------------------------------------------------------- */

static hs_status refuse_same(const char *out, const char *in, hs_err *err)
{
    if (in && hs_same_file(out, in))
        return hs_fail(err, HS_ERR_USAGE, "%s: is an input; an output may not replace it", out);
    return HS_OK;
}

/* Before any work: the importance matrix can be made and replaces nothing that is needed. */
static hs_status check_imatrix(const options *o, bool force, hs_err *err)
{
    if (!o->imatrix)
        return HS_OK;
    hs_status s = refuse_same(o->imatrix, o->model, err);
    for (size_t i = 0; s == HS_OK && i < o->texts.n; i++)
        s = refuse_same(o->imatrix, o->texts.v[i], err);
    if (s == HS_OK && (hs_same_file(o->imatrix, o->out) || strcmp(o->imatrix, o->out) == 0))
        s = hs_fail(err, HS_ERR_USAGE, "%s: is the profile too; name another file", o->imatrix);
    hs_out *probe;
    if (s == HS_OK)
        s = hs_out_open(&probe, o->imatrix, force, err);
    if (s == HS_OK)
        hs_out_abort(probe);
    return s;
}

/* Before any work: the output is no input, and it can be made. */
static hs_status check_outputs(const options *o, bool replace, bool force, hs_err *err)
{
    hs_status s = refuse_same(o->out, o->model, err);
    for (size_t i = 0; s == HS_OK && i < o->texts.n; i++)
        s = refuse_same(o->out, o->texts.v[i], err);
    for (size_t i = 0; s == HS_OK && i < o->merge.n; i++)
        s = refuse_same(o->out, o->merge.v[i], err);
    if (s == HS_OK && o->export_pt && o->import_pt)
        s = refuse_same(o->export_pt, o->import_pt, err);
    if (s != HS_OK)
        return s;
    if (o->report)
        s = hs_report_check(o->report, force, err);
    if (s != HS_OK)
        return s;
    hs_out *probe;
    s = hs_out_open(&probe, o->out, replace, err);
    if (s == HS_OK)
        hs_out_abort(probe);
    return s;
}

static hs_status finish_outputs(const hs_cli *cli, const options *o, const hs_activation *a,
                                hs_err *err)
{
    if (!o->export_pt)
        return HS_OK;
    const hs_status s = hs_pt_export(a, o->export_pt, cli->force, err);
    if (s == HS_OK)
        hs_cli_note(cli, "%s: %" PRIu32 " files", o->export_pt, a->n_layer);
    return s;
}

/* ---- the ways ------------------------------------------------------------------------- */

static hs_status load_model(hs_model **m, hs_model_info *info, const char *path, hs_err *err)
{
    const hs_status s = hs_model_load(m, path, err);
    if (s == HS_OK)
        hs_model_describe(*m, info);
    return s;
}

/* The profile to go on with: that of the file `from`, or a fresh one for NULL. */
static hs_status begin(hs_activation **a, const hs_cli *cli, const options *o, const hs_model *m,
                       const hs_model_info *info, const hs_texts *t, const char *from, hs_err *err)
{
    const uint32_t level = o->magnitude ? (uint32_t)strtoul(o->magnitude, NULL, 10) : 50;
    const hs_count_want want = {.generate = (uint32_t)o->generate,
                                .n_top = (uint32_t)o->coactivation,
                                .magnitude = info->relu_family ? 0 : level};
    hs_activation *fresh = NULL;
    hs_status s = hs_count_begin(&fresh, m, t, &want, cli, err);
    if (s == HS_OK && !from)
        s = hs_count_pilot(fresh, m, cli, err);
    if (s != HS_OK || !from) {
        *a = fresh;
        return s;
    }
    s = hs_activation_read(a, from, err);
    if (s == HS_OK)
        s = hs_count_same(*a, fresh, from, err);
    if (s == HS_OK)
        hs_cli_note(cli, "%s: continues after %" PRIu64 " chunks", from, (*a)->chunks_done);
    hs_activation_free(fresh);
    return s;
}

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* What --resume goes on with: the saved chunks of an interrupted run, else OUT itself. */
static const char *resume_from(const hs_cli *cli, const options *o, const char *partial)
{
    if (!o->resume)
        return NULL;
    if (exists(partial))
        return partial;
    if (exists(o->out))
        return o->out;
    hs_cli_note(cli, "%s: does not exist yet, starts from the first chunk", o->out);
    return NULL;
}

/* Everything before the first chunk. */
static hs_status prepare(hs_activation **a, const hs_cli *cli, const options *o, hs_count_job *job,
                         const hs_model *m, const hs_model_info *info, hs_texts *t, hs_err *err)
{
    if (info->relu_family && o->magnitude)
        return hs_fail(err, HS_ERR_USAGE,
                       "%s: --magnitude is for activations that are never zero, its %s is",
                       o->model, info->activation);
    if (!info->relu_family)
        hs_cli_note(cli,
                    "%s is never zero: what counts as active is the strongest %ld %% of a layer's "
                    "activations",
                    info->activation, 100 - (o->magnitude ? strtol(o->magnitude, NULL, 10) : 50));
    const char *from = job->from = resume_from(cli, o, job->partial);
    job->replace = cli->force || from == o->out;
    hs_status s = check_outputs(o, job->replace, cli->force, err);
    if (s == HS_OK)
        s = check_imatrix(o, cli->force, err);
    if (s == HS_OK && o->export_pt)
        s = hs_pt_export_check(o->export_pt, info->n_layer, cli->force, err);
    const uint32_t most = info->n_ctx_train && info->n_ctx_train < 4096 ? info->n_ctx_train : 4096;
    t->n_ctx = o->n_ctx ? (uint32_t)o->n_ctx : most;
    t->bos = info->add_bos && !cli->no_bos ? info->bos : -1;
    if (info->n_ctx_train && t->n_ctx + (uint64_t)o->generate > info->n_ctx_train)
        hs_cli_warn(cli, "context %" PRIu64 " is longer than the model's %" PRIu32,
                    t->n_ctx + (uint64_t)o->generate, info->n_ctx_train);
    if (s == HS_OK)
        s = hs_texts_read(t, o->texts.v, o->texts.n, err);
    if (s == HS_OK)
        s = begin(a, cli, o, m, info, t, from, err);
    if (s == HS_OK)
        s = hs_texts_tokenize(t, m, (uint64_t)o->chunks, cli->special, cli, err);
    if (s == HS_OK)
        hs_cli_note(cli, "%" PRIu64 " chunks of %" PRIu32 ", %" PRIu64 " positions", t->n_chunks,
                    t->n_ctx, hs_texts_positions(t, t->n_chunks));
    return s;
}

static hs_status profile(hs_activation **a, const hs_cli *cli, const options *o, hs_err *err)
{
    hs_model *m = NULL;
    hs_model_info info;
    hs_texts t = {0};
    hs_status s = load_model(&m, &info, o->model, err);
    char *partial = NULL;
    if (s == HS_OK && asprintf(&partial, "%s.partial", o->out) < 0) {
        partial = NULL;
        s = hs_fail(err, HS_ERR_NOMEM, "out of memory");
    }
    hs_count_job job = {.cli = cli,
                        .model = m,
                        .texts = &t,
                        .out = o->out,
                        .partial = partial,
                        .autosave_s = (double)o->autosave,
                        .ranks = o->ranks};
    if (s == HS_OK)
        s = prepare(a, cli, o, &job, m, &info, &t, err);
    if (s == HS_OK && o->imatrix)
        s = hs_sums_new(&job.sums, m, err);
    /* No rank starts while another one cannot. */
    s = hs_ranks_agree(o->ranks, s, err);
    if (s == HS_OK)
        s = hs_count_run(*a, &job, err);
    if (s == HS_OK && o->imatrix)
        s = hs_sums_write(job.sums, o->imatrix, cli->force, &t, t.n_chunks, err);
    hs_sums_free(job.sums);
    free(partial);
    hs_texts_free(&t);
    hs_model_free(m);
    return s;
}

static hs_status import(hs_activation **a, const hs_cli *cli, const options *o, hs_err *err)
{
    hs_pt_expect expect = {.positions = (uint64_t)o->positions};
    hs_model_info info = {0};
    hs_model *m = NULL;
    char print[sizeof info.fingerprint] = "";
    hs_status s = check_outputs(o, cli->force, cli->force, err);
    if (s == HS_OK && o->model)
        s = load_model(&m, &info, o->model, err);
    if (s == HS_OK && m) {
        expect.n_layer = info.n_layer;
        expect.n_ff = info.n_ff;
        memcpy(print, info.fingerprint, sizeof print);
    }
    hs_model_free(m);
    if (s == HS_OK)
        s = hs_pt_import(a, o->import_pt, &expect, err);
    if (s != HS_OK)
        return s;
    memcpy((*a)->fingerprint, print, sizeof print);
    if (!print[0])
        hs_cli_warn(cli, "without a model (-m) the profile cannot say which one it belongs to");
    return hs_activation_write(*a, o->out, cli->force, err);
}

/* A text counted twice is legal and seldom meant. */
static void warn_repeated(const hs_cli *cli, const hs_activation *a)
{
    for (size_t i = 0; i < a->n_source; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(a->source[i].hash, a->source[j].hash) == 0) {
                hs_cli_warn(cli, "%s is in the sum more than once", a->source[i].name);
                return;
            }
}

static unsigned statistics(const hs_activation *a)
{
    unsigned set = 0;
    for (int i = 0; i < HS_STATS; i++)
        set |= a->stat[i] ? 1u << i : 0;
    return set;
}

static void warn_lost(const hs_cli *cli, unsigned lost, const char *path)
{
    for (int i = 0; i < HS_STATS; i++)
        if (lost & 1u << i)
            hs_cli_warn(cli, "%s: the sum has no %s: not all profiles have one that adds up", path,
                        hs_activation_stat_name((hs_activation_stat)i));
}

static hs_status merge(hs_activation **a, const hs_cli *cli, const options *o, hs_err *err)
{
    hs_status s = check_outputs(o, cli->force, cli->force, err);
    if (s == HS_OK)
        s = hs_activation_read(a, o->merge.v[0], err);
    for (size_t i = 1; s == HS_OK && i < o->merge.n; i++) {
        hs_activation *b;
        s = hs_activation_read(&b, o->merge.v[i], err);
        if (s == HS_OK) {
            const unsigned had = statistics(*a) | statistics(b);
            s = hs_activation_add(*a, b, err);
            if (s != HS_OK)
                (void)hs_ctx(err, s, "%s: ", o->merge.v[i]);
            else
                warn_lost(cli, had & ~statistics(*a), o->merge.v[i]);
            hs_activation_free(b);
        }
    }
    if (s != HS_OK)
        return s;
    warn_repeated(cli, *a);
    return hs_activation_write(*a, o->out, cli->force, err);
}

static hs_status print(const hs_cli *cli, const options *o, const hs_activation *a, hs_err *err)
{
    hs_summary *sum;
    hs_status s = hs_summary_new(&sum, a, err);
    if (s != HS_OK)
        return s;
    if (s == HS_OK && o->report)
        s = hs_report_write(cli, o->report, a, sum, err);
    if (s == HS_OK && cli->json)
        s = hs_profile_print_json(stdout, a, sum, err);
    else if (s == HS_OK)
        hs_profile_print(stdout, a, sum);
    hs_summary_free(sum);
    return s;
}

static hs_status work(const hs_cli *cli, const options *o, hs_err *err)
{
    hs_activation *a = NULL;
    hs_status s;
    if (o->machine)
        return hs_machine_measure(cli, o->out, err);
    if (o->show)
        s = hs_activation_read(&a, o->show, err);
    else if (o->merge.n)
        s = merge(&a, cli, o, err);
    else if (o->import_pt)
        s = import(&a, cli, o, err);
    else
        s = profile(&a, cli, o, err);
    const bool speaks = a && hs_ranks_index(o->ranks) == 0;
    if (s == HS_OK && speaks)
        s = finish_outputs(cli, o, a, err);
    if (s == HS_OK && speaks)
        s = print(cli, o, a, err);
    s = hs_ranks_agree(o->ranks, s, err);
    hs_activation_free(a);
    return s;
}

/* One process speaks for all. */
static bool silence(void)
{
    return freopen("/dev/null", "w", stdout) && freopen("/dev/null", "w", stderr);
}

/* Processes may have been given different options: when one stops here, all do.  `status` as
 * after parsing: -1 to go on. */
static int use_agreed(const hs_cli *cli, const options *o, int status)
{
    hs_err err = {0};
    const bool mine = status > 0;
    const hs_status s = hs_ranks_agree(
        o->ranks, mine ? hs_fail(&err, HS_ERR_USAGE, "its options are wrong") : HS_OK, &err);
    if (s == HS_OK || mine)
        return status;
    return hs_cli_fail(cli, &err);
}

int main(int argc, char **argv)
{
    options o = {.autosave = 60};
    hs_err mpi = {0};
    const hs_status ranks = hs_ranks_open(&o.ranks, &mpi);
    if (hs_ranks_index(o.ranks) > 0 && !silence())
        return 1;
    const double big = 9007199254740992.0; /* 2^53: exact as a double */
    const hs_opt opts[] = {
        {HS_OPT_GROUP, .help = "Where the counts come from (one of these)"},
        {HS_OPT_FILES, "input", 'i', &o.texts, "TEXT...", .help = "run the model over these texts"},
        {HS_OPT_FILES, "merge", 0, &o.merge, "FILE...", .help = "add up profiles, exactly"},
        {HS_OPT_STRING, "import-pt", 0, &o.import_pt, "DIR",
         .help = "read PowerInfer's activation_<layer>.pt"},
        {HS_OPT_STRING, "show", 0, &o.show, "FILE", .help = "print a profile's summary"},
        {HS_OPT_FLAG, "machine", 0, &o.machine,
         .help = "measure this machine for hotset-solve, some seconds"},
        {HS_OPT_GROUP, .help = "Running the model"},
        {HS_OPT_STRING, "model", 'm', &o.model, "FILE",
         .help = "the model; with --import-pt, what the counts must fit"},
        {HS_OPT_INT, "ctx", 'c', &o.n_ctx, "N", .min = 2, .max = 1 << 24,
         .help = "positions of a chunk (default: the model's, at most 4096)"},
        {HS_OPT_INT, "chunks", 0, &o.chunks, "N", .min = 1, .max = big,
         .help = "only the first N chunks over all texts (default: all)"},
        {HS_OPT_INT, "generate", 0, &o.generate, "N", .min = 1, .max = 1 << 20,
         .help = "let the model add N tokens to each chunk, greedily (default: 0)"},
        {HS_OPT_INT, "coactivation", 0, &o.coactivation, "N", .min = 1,
         .max = HS_ACTIVATION_MAX_TOP,
         .help = "count pairs of the N hottest neurons of each layer (default: 0)"},
        {HS_OPT_CHOICE, "magnitude", 0, &o.magnitude, "PERCENT", .choices = "50|70|80|90|95",
         .help = "of an activation never zero, inactive share (default: 50)"},
        {HS_OPT_FLAG, "resume", 0, &o.resume,
         .help = "continue an interrupted run, saved in OUT.partial, or OUT itself"},
        {HS_OPT_INT, "autosave", 0, &o.autosave, "S", .min = 0, .max = 1e6,
         .help = "save to OUT.partial about every S seconds (default: 60)"},
        {HS_OPT_INT, "positions", 0, &o.positions, "N", .min = 1, .max = big,
         .help = "positions behind imported counts (default: the largest count)"},
        {HS_OPT_GROUP, .help = "Results"},
        {HS_OPT_STRING, "output", 'o', &o.out, "OUT", .help = "the profile to write"},
        {HS_OPT_STRING, "imatrix", 0, &o.imatrix, "FILE",
         .help = "also write the importance matrix for hotset-quantize there"},
        {HS_OPT_STRING, "report", 0, &o.report, "DIR",
         .help = "also write report.html with plots, and its data as CSV, there"},
        {HS_OPT_STRING, "export-pt", 0, &o.export_pt, "DIR",
         .help = "also write activation_<layer>.pt there, as PowerInfer reads them"},
        {.type = HS_OPT_END},
    };
    hs_cli cli = {
        .program = "hotset-profile",
        .synopsis = "-m MODEL -i TEXT... -o OUT [OPTION...]",
        .summary = "Counts, for every neuron of every layer, the positions of some texts at which "
                   "it is active, writes the counts to a profile and prints what they say.",
        .example = "-m model.gguf -i calibration.txt -o model.activation.gguf",
        .opts = opts,
        .has_model = true,
        .has_text = true,
        .has_output = true,
    };
    int status = hs_cli_parse(&cli, argc, argv);
    if (status >= 0) {
        (void)use_agreed(&cli, &o, status);
        hs_ranks_close(o.ranks);
        return status;
    }
    status = ranks == HS_OK ? check_options(&cli, &o) : hs_cli_fail(&cli, &mpi);
    status = use_agreed(&cli, &o, status);
    if (status < 0) {
        hs_err err = {0};
        const hs_status s = work(&cli, &o, &err);
        status = s == HS_OK ? 0 : hs_cli_fail(&cli, &err);
        status = hs_cli_finish(&cli, status);
    }
    free(o.texts.v);
    free(o.merge.v);
    hs_cli_fini(&cli);
    hs_ranks_close(o.ranks);
    return status;
}
