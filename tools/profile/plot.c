/* The script of the plots. */
#include "runtime/cli_page.h"
#include "tools/profile/detail.h"
#include "tools/profile/report.h"

#include <inttypes.h>

static int rows_height(uint32_t rows)
{
    const uint32_t h = 200 + 22 * rows;
    return h < 900 ? (int)h : 900;
}

static void cumulative(FILE *f, const hs_report *r)
{
    const uint32_t n = r->a->n_layer;
    hs_page_script_plot(f, "cumulative", "Activations served by the hottest neurons", 520);
    fputs("set palette defined (0 '#f2a65a', 0.4 '#e8594f', 0.7 '#8e2f6f', 1 '#1f1140')\n", f);
    fprintf(f,
            "set xlabel 'share of neurons, hottest first (%%)'\n"
            "set ylabel 'share of activations (%%)'\nset cblabel 'layer'\n"
            "set xrange [0:100]\nset yrange [0:100]\nset cbrange [0:%" PRIu32 "]\n"
            "set key bottom right\n"
            "set arrow 1 from 0,80 to 100,80 nohead dt 3 lc rgb '#888888'\n"
            "set arrow 2 from %.6g,0 to %.6g,80 nohead dt 3 lc rgb 'black'\n"
            "set label 2 '80 %% by %.1f %% of the neurons' at %.6g,76 left offset 1,0\n"
            "plot for [i=0:%" PRIu32 "] 'cumulative.csv' using 1:(column(i+3)):(i) with lines lw 1 "
            "lc palette notitle, \\\n"
            "  'layers.csv' using (100*$5):(80):1 with points pt 7 ps 0.6 lc palette "
            "title '80 %% of a layer', \\\n"
            "  'cumulative.csv' using 1:2 with lines lw 3 lc rgb 'black' title 'whole model'\n"
            "unset arrow\nunset label\n",
            n > 1 ? n - 1 : 1, 100 * r->sum->model.share[0], 100 * r->sum->model.share[0],
            100 * r->sum->model.share[0], 100 * r->sum->model.share[0], n - 1);
}

static void heat(FILE *f, const hs_report *r)
{
    const uint32_t n = r->a->n_layer;
    fputs("set palette defined (0 '#fff7e6', 0.25 '#f7b267', 0.5 '#e8594f', 0.75 '#8e2f6f', "
          "1 '#1f1140')\n",
          f);
    hs_page_script_plot(f, "heat", "How often the neurons of each rank are active", rows_height(n));
    fprintf(f,
            "set xlabel 'rank within the layer (%%), hottest first'\nset ylabel 'layer'\n"
            "set cblabel 'positions active (%%)'\n"
            "set xrange [0:100]\nset yrange [%g:-0.5]\nset cbrange [0:100]\n"
            "plot 'heat.csv' using 2:1:3 with image pixels notitle\n",
            (double)n - 0.5);
}

static void sparsity(FILE *f, const hs_report *r)
{
    const uint32_t n = r->a->n_layer;
    double most = 0;
    for (uint32_t l = 0; l < n; l++) {
        const double high = 100 * hs_detail_quantile(r->a, l, 95);
        most = high > most ? high : most;
    }
    most = most * 1.4 + 1 < 100 ? most * 1.4 + 1 : 100;
    hs_page_script_plot(f, "sparsity", "Neurons active at a position, layer by layer",
                        rows_height(n));
    fprintf(f,
            "set xlabel 'neurons active at a position (%%)'\nset ylabel 'layer'\n"
            "set cblabel 'share of positions (%%)'\nset key top right\n"
            "set xrange [0:%g]\nset yrange [%g:-0.5]\nset cbrange [0:*]\n"
            "plot 'sparsity.csv' using ($2+0.5):1:3 with image pixels notitle, \\\n"
            "  'layers.csv' using (100*$4):1 with points pt 7 ps 0.7 lc rgb 'black' "
            "title 'mean', \\\n"
            "  '' using (100*$9):1 with points pt 9 ps 0.7 lc rgb '#666666' title '5 %%', \\\n"
            "  '' using (100*$11):1 with points pt 11 ps 0.7 lc rgb '#666666' title '95 %%'\n",
            most, (double)n - 0.5);
}

static void overlap(FILE *f, const hs_report *r)
{
    const uint32_t n = (uint32_t)r->curves->n_text;
    hs_page_script_plot(f, "overlap", "Overlap of the texts' hot neurons (Jaccard index)",
                        rows_height(2 * n) + 60);
    fprintf(f,
            "set xlabel 'text'\nset ylabel 'text'\nset cblabel ''\nset xtics 1\nset ytics 1\n"
            "set xrange [0.5:%" PRIu32 ".5]\nset yrange [%" PRIu32 ".5:0.5]\nset cbrange [0:1]\n"
            "plot 'overlap.csv' using 2:1:3 with image pixels notitle, \\\n"
            "  '' using 2:1:(sprintf('%%.2f', $3)):($3 > 0.4 ? 0xffffff : 0) with labels tc rgb "
            "variable "
            "notitle\n",
            n, n);
}

static hs_status write_script(const hs_report *r, hs_err *err)
{
    FILE *f;
    const hs_status s = hs_page_file(&f, r->dir, HS_PAGE_SCRIPT, err);
    if (s != HS_OK)
        return s;
    hs_page_script(f);
    cumulative(f, r);
    heat(f, r);
    if (r->curves->active)
        sparsity(f, r);
    if (r->curves->n_text)
        overlap(f, r);
    fputs("set output\n", f);
    return hs_page_close(f, r->dir, HS_PAGE_SCRIPT, err);
}

hs_status hs_report_plots(const hs_report *r, bool *drawn, hs_err *why, hs_err *err)
{
    const char *name[4] = {"cumulative", "heat"};
    size_t n = 2;
    *drawn = false;
    const hs_status s = write_script(r, err);
    if (s != HS_OK)
        return s;
    if (r->curves->active)
        name[n++] = "sparsity";
    if (r->curves->n_text)
        name[n++] = "overlap";
    *drawn = hs_page_draw(r->dir, name, n, why);
    return HS_OK;
}
