/* Plots for machines without gnuplot, in characters. */
#include "tools/profile/report.h"

#include <inttypes.h>
#include <string.h>

enum { WIDTH = 64, HEIGHT = 20 };

void hs_report_text_cumulative(FILE *f, const hs_report *r)
{
    const double *v = r->curves->cumulative + (size_t)r->a->n_layer * HS_CURVE_POINTS;
    fputs("activations, whole model\n", f);
    for (int y = HEIGHT; y >= 0; y--) {
        char line[WIDTH + 2];
        for (int x = 0; x <= WIDTH; x++) {
            const double at = v[x * (HS_CURVE_POINTS - 1) / WIDTH];
            const bool curve = (int)(at * HEIGHT + 0.5) == y;
            line[x] = " -*"[curve ? 2 : y * 5 == HEIGHT * 4];
        }
        line[WIDTH + 1] = 0;
        fprintf(f, "%4d %% |%s\n", y * 100 / HEIGHT, line);
    }
    fputs("       +", f);
    for (int x = 0; x <= WIDTH; x++)
        fputc('-', f);
    fprintf(f,
            "\n        0 %% %*s\n        neurons, hottest first\n\n80 %% of the activations are "
            "made by\n",
            WIDTH - 4, "100 %");
    for (uint32_t l = 0; l <= r->sum->n_layer; l++) {
        const bool model = l == r->sum->n_layer;
        const double share = (model ? &r->sum->model : &r->sum->layer[l])->share[0];
        char bar[51];
        const int n = (int)(share * 50 + 0.5);
        memset(bar, '#', sizeof bar);
        bar[n < 50 ? n : 50] = 0;
        if (model)
            fprintf(f, "model  %6.2f %% %s\n", 100 * share, bar);
        else
            fprintf(f, "%5" PRIu32 "  %6.2f %% %s\n", l, 100 * share, bar);
    }
}

/* Shades from the largest value down; a row that is all zeros is blank. */
void hs_report_text_heat(FILE *f, const double *v, uint32_t rows, uint32_t columns,
                         const char *below)
{
    static const char shade[] = " .:-=+*#%@";
    double most = 0;
    for (size_t i = 0; i < (size_t)rows * columns; i++)
        most = v[i] > most ? v[i] : most;
    for (uint32_t y = 0; y < rows; y++) {
        fprintf(f, "%4" PRIu32 " |", y);
        for (uint32_t x = 0; x < columns; x++) {
            const double share = most > 0 ? v[(size_t)y * columns + x] / most : 0;
            fputc(shade[(int)(share * 9 + 0.5)], f);
        }
        fputs("|\n", f);
    }
    fprintf(f, "      %s; @ is %.3g, blank below %.2g\n", below, most, most / 18);
}
