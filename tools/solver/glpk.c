/* The placement problem as GLPK sees it.
 *
 *     maximise   sum v[l][b] x[l][b]  +  sum V[l] y[l]
 *     subject to sum w[l][b] x[l][b]  +  sum W[l] y[l]  <=  capacity
 *                sum over b of x[l][b]  -  M y[l]  <=  0        layers with a minimum
 *                x[l][b + 1]  -  x[l][b]  <=  0                 layers with uneven groups
 *
 * x is a group beyond the least number that layer l may have, y that least number together (the
 * groups are sorted, so a layer that has any has those), M the number of the layer's x.  M is no
 * arbitrary large number: with 1e6 the integrality tolerance alone lets ten groups through while
 * y counts as 0.  With equal groups a colder one never displaces a hotter one; where a later
 * group is cheaper (a short last one) the third kind of row says so.
 *
 * Where a class is no layer's row of groups but any list of choices (the latency objective: each
 * choice has its time), there is a column for each choice:
 *
 *     maximise   sum v[l][i] z[l][i]
 *     subject to sum w[l][i] z[l][i]  <=  capacity
 *                sum over i of z[l][i]  <=  1                   classes with more than one */
#include "tools/solver/core.h"

#include <glpk.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* GLPK drops nodes that promise less than this much more, relative to the best value. */
static const double glpk_tolerance = 1e-7;

/* ---- aborts -----------------------------------------------------------------------------------
 */

typedef struct guard {
    jmp_buf back;
    char said[200]; /* what GLPK printed last */
} guard;

/* GLPK prints; we do not.  The last line is kept for the message of an abort. */
static int keep_quiet(void *info, const char *s)
{
    guard *g = info;
    const size_t n = strcspn(s, "\n");
    if (n)
        snprintf(g->said, sizeof g->said, "%.*s", (int)(n < 190 ? n : 190), s);
    return 1;
}

static void jump_back(void *info)
{
    guard *g = info;
    longjmp(g->back, 1);
}

hs_status hs_glpk_guard(void (*body)(void *ud), void *ud, hs_err *err)
{
    guard g = {.said = ""};
    glp_term_hook(keep_quiet, &g);
    glp_error_hook(jump_back, &g);
    if (setjmp(g.back)) {
        /* All that may still be done with GLPK after an abort; it starts afresh. */
        glp_free_env();
        return hs_fail(err, HS_ERR_FAILED, "GLPK aborted: %s",
                       g.said[0] ? g.said : "no reason given");
    }
    body(ud);
    glp_free_env();
    return HS_OK;
}

/* ---- the program ------------------------------------------------------------------------------
 */

/* Groups [lo, hi) of a layer are open; `whole`: one column, the first one, stands for lo groups
 * and the layer may be empty; otherwise lo groups are surely chosen. */
typedef struct window {
    uint32_t lo, hi;
    bool whole, chained;
    int column, row, chain; /* GLPK's numbers, from 1; 0 for none */
} window;

/* The matrix; owned by the program, so that an abort does not leak it. */
typedef struct triplets {
    int n, *row, *col;
    double *v;
} triplets;

typedef struct program {
    hs_core *core;
    window *w;         /* [n_class]; lo and hi are choices when the program is over choices */
    uint64_t capacity; /* units, beyond what is surely chosen */
    int64_t base;      /* value of what is surely chosen */
    int n_columns, n_rows;
    size_t n_entries;
    double gap, until;
    double *column; /* [n_columns + 1], to hand plans over */
    uint32_t *pick; /* [n_class], to take plans back */
    triplets t;
    glp_prob *lp;
    bool handed_over, broken, stopped;
    int rc, lp_status, mip_status;
    int64_t claimed; /* value of GLPK's plan as it came */
    double bound;    /* of the open part; HUGE_VAL while unknown */
} program;

/* The choices of a layer that the bound leaves, or all of them. */
static void open_window(const hs_core *c, uint32_t l, bool reduce, window *w)
{
    const hs_solve_layer *y = &c->problem->layer[l];
    const hs_wide slack = c->upper - ((hs_wide)c->value + 1) * c->price_q;
    bool empty = false, any = false;
    *w = (window){0};
    for (size_t i = c->first[l]; i < c->first[l + 1]; i++) {
        const hs_choice *o = &c->choice[i];
        /* The plan at hand stays in the program: GLPK must be able to answer with it. */
        if (reduce && hs_core_loss(c, l, o) > slack && i != c->first[l] + c->pick[l])
            continue;
        if (!o->k) {
            empty = true;
            continue;
        }
        w->lo = any ? w->lo : o->k;
        w->hi = o->k;
        any = true;
    }
    if (empty && any && y->min_groups <= 1)
        w->lo = 0;
    w->whole = empty && any && w->lo > 0;
}

static uint64_t units(const program *g, uint32_t l, uint32_t k)
{
    return g->core->problem->layer[l].bytes[k] / g->core->unit;
}

static uint64_t group_units(const program *g, uint32_t l, uint32_t b)
{
    return units(g, l, b + 1) - units(g, l, b);
}

static hs_status lay_out_groups(program *g, bool reduce, hs_err *err)
{
    const hs_core *c = g->core;
    int64_t columns = 0, rows = 1;
    g->capacity = c->cap;
    for (uint32_t l = 0; l < c->n_class; l++) {
        window *w = &g->w[l];
        open_window(c, l, reduce, w);
        if (!w->whole) {
            g->capacity -= units(g, l, w->lo);
            g->base += c->problem->layer[l].value[w->lo];
        }
        for (uint32_t b = w->lo + 1; b < w->hi; b++)
            w->chained = w->chained || group_units(g, l, b) < group_units(g, l, b - 1);
        const int64_t x = w->hi - w->lo;
        w->column = x || w->whole ? (int)columns + 1 : 0;
        columns += x + w->whole;
        /* x: capacity, M, and two rows of a chain; y: capacity, M. */
        g->n_entries += 4 * (size_t)x + 2;
        if (w->whole && x)
            w->row = (int)++rows;
        if (w->chained) {
            w->chain = (int)rows + 1;
            rows += x - 1;
        }
        if (columns > INT_MAX / 8 || rows > INT_MAX / 8)
            return hs_fail(err, HS_ERR_FAILED, "more groups than GLPK can take; use larger ones");
    }
    g->n_columns = (int)columns;
    g->n_rows = (int)rows;
    return HS_OK;
}

/* Choice i of class l has a column. */
static bool is_open(const hs_core *c, uint32_t l, size_t i, bool reduce)
{
    const hs_wide slack = c->upper - ((hs_wide)c->value + 1) * c->price_q;
    return !reduce || i == c->first[l] + c->pick[l] || hs_core_loss(c, l, &c->choice[i]) <= slack;
}

static hs_status lay_out_choices(program *g, bool reduce, hs_err *err)
{
    const hs_core *c = g->core;
    int64_t columns = 0, rows = 1;
    g->capacity = c->cap;
    for (uint32_t l = 0; l < c->n_class; l++) {
        window *w = &g->w[l];
        uint32_t open = 0;
        *w = (window){.lo = UINT32_MAX};
        for (size_t i = c->first[l] + 1; i < c->first[l + 1]; i++) {
            if (!is_open(c, l, i, reduce))
                continue;
            const uint32_t at = (uint32_t)(i - c->first[l]);
            w->lo = w->lo < at ? w->lo : at;
            w->hi = at + 1;
            open++;
        }
        w->lo = open ? w->lo : w->hi;
        w->column = open ? (int)columns + 1 : 0;
        /* Those between that are not open get columns too; they do no harm. */
        columns += w->hi - w->lo;
        w->row = w->hi - w->lo > 1 ? (int)++rows : 0;
        g->n_entries += 2 * (size_t)(w->hi - w->lo);
        if (columns > INT_MAX / 8)
            return hs_fail(err, HS_ERR_FAILED, "more groups than GLPK can take; use larger ones");
    }
    g->n_columns = (int)columns;
    g->n_rows = (int)rows;
    return HS_OK;
}

static void put(triplets *t, int row, int col, double v)
{
    t->n++;
    t->row[t->n] = row;
    t->col[t->n] = col;
    t->v[t->n] = v;
}

static void add_column(const program *g, triplets *t, int j, int64_t value, uint64_t cost)
{
    glp_set_col_kind(g->lp, j, GLP_BV);
    glp_set_obj_coef(g->lp, j, (double)value);
    if (cost)
        put(t, 1, j, (double)cost);
}

static void add_layer_columns(const program *g, uint32_t l, triplets *t)
{
    const window *w = &g->w[l];
    const int64_t *value = g->core->problem->layer[l].value;
    int j = w->column;
    if (w->whole) {
        add_column(g, t, j, value[w->lo], units(g, l, w->lo));
        if (w->row)
            put(t, w->row, j, -(double)(w->hi - w->lo));
        j++;
    }
    for (uint32_t b = w->lo; b < w->hi; b++, j++) {
        add_column(g, t, j, value[b + 1] - value[b], group_units(g, l, b));
        if (w->row)
            put(t, w->row, j, 1);
        if (w->chained && b > w->lo) {
            const int row = w->chain + (int)(b - w->lo) - 1;
            put(t, row, j, 1);
            put(t, row, j - 1, -1);
        }
    }
}

static void add_choice_columns(const program *g, uint32_t l, triplets *t)
{
    const window *w = &g->w[l];
    int j = w->column;
    for (uint32_t i = w->lo; i < w->hi; i++, j++) {
        const hs_choice *o = &g->core->choice[g->core->first[l] + i];
        add_column(g, t, j, o->value, o->cost);
        if (w->row)
            put(t, w->row, j, 1);
    }
}

static void load(program *g, triplets *t)
{
    g->lp = glp_create_prob();
    glp_set_obj_dir(g->lp, GLP_MAX);
    glp_add_rows(g->lp, g->n_rows);
    glp_add_cols(g->lp, g->n_columns);
    glp_set_row_bnds(g->lp, 1, GLP_UP, 0, (double)g->capacity);
    for (int i = 2; i <= g->n_rows; i++)
        glp_set_row_bnds(g->lp, i, GLP_UP, 0, g->core->problem ? 0 : 1);
    for (uint32_t l = 0; l < g->core->n_class; l++) {
        if (g->w[l].column && g->core->problem)
            add_layer_columns(g, l, t);
        else if (g->w[l].column)
            add_choice_columns(g, l, t);
    }
    glp_load_matrix(g->lp, t->n, t->row, t->col, t->v);
}

/* ---- solving -------------------------------------------------------------------------------- */

static int milliseconds(double until)
{
    const double ms = 1000 * (until - hs_core_clock());
    /* 0 would be no time at all to one of GLPK's solvers and no limit to another. */
    return ms < 1 ? 1 : ms > INT_MAX ? INT_MAX : (int)ms;
}

/* The best plan so far, as GLPK's columns. */
static void express(const program *g)
{
    const hs_core *c = g->core;
    for (uint32_t l = 0; l < c->n_class; l++) {
        const window *w = &g->w[l];
        const uint32_t at = c->pick[l], k = c->choice[c->first[l] + at].k;
        int j = w->column;
        if (w->whole)
            g->column[j++] = k > 0;
        for (uint32_t b = w->lo; b < w->hi; b++)
            g->column[j++] = c->problem ? b < k : b == at;
    }
}

static void on_branch(glp_tree *tree, void *info)
{
    program *g = info;
    const int node = glp_ios_best_node(tree);
    if (node) {
        const double bound = glp_ios_node_bound(tree, node);
        g->bound = bound < g->bound ? bound : g->bound;
    }
    if (glp_ios_reason(tree) == GLP_IHEUR && !g->handed_over) {
        g->handed_over = true;
        express(g);
        glp_ios_heur_sol(tree, g->column);
    }
    if (g->core->stop && g->core->stop()) {
        g->stopped = true;
        glp_ios_terminate(tree);
    }
}

/* Columns that GLPK settled as integers, back to groups of a layer. */
static uint32_t groups_of(program *g, uint32_t l)
{
    const window *w = &g->w[l];
    uint32_t k = 0;
    int j = w->column;
    const bool whole = w->whole && glp_mip_col_val(g->lp, j) > 0.5;
    j += w->whole;
    for (uint32_t b = w->lo; b < w->hi; b++, j++)
        k += glp_mip_col_val(g->lp, j) > 0.5;
    g->broken = g->broken || (w->whole && !whole && k);
    return !w->whole || whole ? w->lo + k : 0;
}

/* The choice that is k groups, or a better one for no more bytes. */
static uint32_t choice_of(program *g, uint32_t l, uint32_t k)
{
    const hs_core *c = g->core;
    const hs_solve_layer *y = &c->problem->layer[l];
    const uint32_t n = (uint32_t)(c->first[l + 1] - c->first[l]);
    uint32_t at = 0;
    g->broken = g->broken || (k && k < y->min_groups) || units(g, l, k) > c->cap;
    while (at + 1 < n && c->choice[c->first[l] + at + 1].cost <= units(g, l, k))
        at++;
    return at;
}

static uint32_t one_of(program *g, uint32_t l)
{
    const window *w = &g->w[l];
    uint32_t at = 0, n = 0;
    for (uint32_t i = w->lo; i < w->hi; i++)
        if (glp_mip_col_val(g->lp, w->column + (int)(i - w->lo)) > 0.5) {
            at = i;
            n++;
        }
    g->broken = g->broken || n > 1;
    return at;
}

static void take_back(program *g)
{
    for (uint32_t l = 0; l < g->core->n_class; l++)
        g->pick[l] = g->core->problem ? choice_of(g, l, groups_of(g, l)) : one_of(g, l);
}

static void branch(program *g)
{
    glp_iocp cp;
    glp_init_iocp(&cp);
    cp.msg_lev = GLP_MSG_OFF;
    cp.presolve = GLP_OFF;
    cp.cov_cuts = GLP_ON;
    cp.mir_cuts = GLP_ON;
    cp.mip_gap = g->gap;
    cp.tol_obj = glpk_tolerance;
    cp.tm_lim = milliseconds(g->until);
    cp.cb_func = on_branch;
    cp.cb_info = g;
    g->rc = glp_intopt(g->lp, &cp);
    g->mip_status = glp_mip_status(g->lp);
    if (g->mip_status == GLP_OPT || g->mip_status == GLP_FEAS)
        take_back(g);
}

static void solve_guarded(void *ud)
{
    program *g = ud;
    load(g, &g->t);
    /* Branching without the presolver needs the relaxation's optimal basis. */
    glp_smcp sm;
    glp_init_smcp(&sm);
    sm.msg_lev = GLP_MSG_OFF;
    sm.tm_lim = milliseconds(g->until);
    g->rc = glp_simplex(g->lp, &sm);
    g->lp_status = glp_get_status(g->lp);
    g->mip_status = GLP_UNDEF;
    if (g->rc == 0 && g->lp_status == GLP_OPT) {
        g->bound = glp_get_obj_val(g->lp);
        branch(g);
    }
    glp_delete_prob(g->lp);
}

/* ---- what came of it ------------------------------------------------------------------------ */

typedef enum verdict {
    V_OPTIMAL,       /* proven, within GLPK's tolerance */
    V_GAP,           /* proven within the gap */
    V_LIMIT_PLAN,    /* out of time, with a plan */
    V_LIMIT_NOTHING, /* out of time, without one */
    V_STOPPED,       /* interrupted */
    V_INFEASIBLE,
    V_UNBOUNDED,
    V_NO_ROOT, /* the relaxation was not solved */
    V_FAILED,
} verdict;

/* Return codes and statuses together: neither alone tells a plan from a column of zeros. */
static verdict judge(int rc, int lp_status, int mip_status)
{
    const bool plan = mip_status == GLP_OPT || mip_status == GLP_FEAS;
    if (rc == GLP_ETMLIM)
        return plan ? V_LIMIT_PLAN : V_LIMIT_NOTHING;
    if (rc == GLP_ESTOP)
        return V_STOPPED;
    if (rc == GLP_EROOT)
        return V_NO_ROOT;
    if (rc == GLP_EMIPGAP)
        return plan ? V_GAP : V_FAILED;
    if (rc == GLP_ENOPFS || (rc == 0 && (lp_status == GLP_NOFEAS || mip_status == GLP_NOFEAS)))
        return V_INFEASIBLE;
    if (rc == GLP_ENODFS || (rc == 0 && lp_status == GLP_UNBND))
        return V_UNBOUNDED;
    if (rc == 0 && lp_status != GLP_OPT)
        return V_NO_ROOT;
    return rc == 0 && mip_status == GLP_OPT ? V_OPTIMAL : V_FAILED;
}

/* A bound in whole counts.  GLPK's numbers are doubles and its proofs have a tolerance, so the
 * bound is rounded up by that much. */
static void take_bound(program *g, double open)
{
    hs_core *c = g->core;
    const double bound = (double)g->base + open + glpk_tolerance * (1 + fabs(open));
    if (!(bound < 4e18))
        return;
    const int64_t b = (int64_t)floor(bound);
    c->glpk_bound = b > c->value ? b : c->value;
    c->bound = c->glpk_bound < c->bound ? c->glpk_bound : c->bound;
}

/* GLPK keeps the capacity to a relative 1e-7, which may be some bytes too many: step down where
 * it matters least until the plan fits.  Anything worse is no rounding. */
static bool trim(program *g)
{
    const hs_core *c = g->core;
    uint64_t cost = 0;
    g->claimed = 0;
    for (uint32_t l = 0; l < c->n_class; l++) {
        cost += c->choice[c->first[l] + g->pick[l]].cost;
        g->claimed += c->choice[c->first[l] + g->pick[l]].value;
    }
    if (cost > c->cap && (double)(cost - c->cap) > 1e-6 * (double)c->cap + 1)
        return false;
    while (cost > c->cap) {
        int64_t least = INT64_MAX;
        uint32_t at = 0;
        for (uint32_t l = 0; l < c->n_class; l++) {
            const hs_choice *o = &c->choice[c->first[l] + g->pick[l]];
            if (g->pick[l] && o[0].value - o[-1].value < least) {
                least = o[0].value - o[-1].value;
                at = l;
            }
        }
        if (least == INT64_MAX)
            return false;
        const hs_choice *o = &c->choice[c->first[at] + g->pick[at]--];
        cost -= o[0].cost - o[-1].cost;
    }
    return true;
}

static hs_status conclude(program *g, hs_core_end *end, hs_err *err)
{
    hs_core *c = g->core;
    const verdict v = judge(g->rc, g->lp_status, g->mip_status);
    if (v == V_OPTIMAL || v == V_GAP || v == V_LIMIT_PLAN) {
        if (g->broken || !trim(g) || !hs_core_offer(c, g->pick, "glpk"))
            return hs_fail(err, HS_ERR_FAILED, "GLPK's answer breaks the limits");
    }
    /* A plan handed over and returned with a proof is GLPK's as well. */
    if ((v == V_OPTIMAL || v == V_GAP) && g->claimed >= c->value)
        c->source = "glpk";
    switch (v) {
    case V_OPTIMAL:
        take_bound(g, (double)(g->claimed - g->base));
        *end = HS_END_OPTIMAL;
        return HS_OK;
    case V_GAP:
        take_bound(g, g->bound);
        *end = HS_END_GAP;
        return HS_OK;
    case V_LIMIT_PLAN:
    case V_LIMIT_NOTHING:
        take_bound(g, g->bound);
        *end = HS_END_TIME;
        return HS_OK;
    case V_STOPPED: return hs_fail(err, HS_ERR_INTERRUPTED, "interrupted");
    case V_INFEASIBLE:
        return hs_fail(err, HS_ERR_FAILED, "GLPK finds no plan feasible, though nothing at all is");
    case V_UNBOUNDED: return hs_fail(err, HS_ERR_FAILED, "GLPK finds the program unbounded");
    case V_NO_ROOT:
        return hs_fail(err, HS_ERR_FAILED, "GLPK did not solve the relaxation (code %d, status %d)",
                       g->rc, g->lp_status);
    case V_FAILED: break;
    }
    return hs_fail(err, HS_ERR_FAILED, "GLPK failed (code %d, status %d)", g->rc, g->mip_status);
}

static hs_status solve_open(program *g, hs_core_end *end, hs_err *err)
{
    hs_core *c = g->core;
    if (!g->n_columns) {
        /* The bound decided every group. */
        c->bound = c->value;
        *end = HS_END_OPTIMAL;
        return HS_OK;
    }
    g->column = calloc((size_t)g->n_columns + 1, sizeof *g->column);
    g->t.row = malloc((g->n_entries + 1) * sizeof *g->t.row);
    g->t.col = malloc((g->n_entries + 1) * sizeof *g->t.col);
    g->t.v = malloc((g->n_entries + 1) * sizeof *g->t.v);
    if (!g->column || !g->t.row || !g->t.col || !g->t.v)
        return hs_fail(err, HS_ERR_NOMEM, "GLPK's program: out of memory");
    hs_status s = hs_glpk_guard(solve_guarded, g, err);
    if (s == HS_OK && g->stopped)
        s = hs_fail(err, HS_ERR_INTERRUPTED, "interrupted");
    return s == HS_OK ? conclude(g, end, err) : s;
}

hs_status hs_core_glpk(hs_core *c, bool reduce, double gap, double seconds, hs_core_end *end,
                       hs_err *err)
{
    const size_t n = (size_t)c->n_class + 1;
    program g = {.core = c, .gap = gap, .until = hs_core_clock() + seconds, .bound = HUGE_VAL};
    *end = HS_END_OPTIMAL;
    g.w = calloc(n, sizeof *g.w);
    g.pick = calloc(n, sizeof *g.pick);
    hs_status s = HS_OK;
    if (!g.w || !g.pick)
        s = hs_fail(err, HS_ERR_NOMEM, "GLPK's program: out of memory");
    else
        s = c->problem ? lay_out_groups(&g, reduce, err) : lay_out_choices(&g, reduce, err);
    if (s == HS_OK) {
        c->undecided = (uint32_t)g.n_columns;
        s = solve_open(&g, end, err);
    }
    free(g.w);
    free(g.pick);
    free(g.column);
    free(g.t.row);
    free(g.t.col);
    free(g.t.v);
    return s;
}
