/* The largest difference between two importance matrices, relative to the largest number of the
 * tensor: for the command-line tests.
 *
 *   imatrix_diff A B        prints the number of tensors, all of A in B and none else, and it */
#include "formats/gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static float at(const hs_gguf_tensor *t, size_t i)
{
    float f;
    memcpy(&f, t->data + 4 * i, 4);
    return f;
}

static double difference(const hs_gguf_tensor *a, const hs_gguf_tensor *b)
{
    double worst = 0, most = 1e-30;
    for (size_t i = 0; i < a->bytes / 4; i++) {
        worst = fmax(worst, fabs((double)at(a, i) - (double)at(b, i)));
        most = fmax(most, fabs((double)at(b, i)));
    }
    return worst / most;
}

int main(int argc, char **argv)
{
    hs_gguf *a = NULL, *b = NULL;
    hs_err err = {HS_OK, ""};
    if (argc != 3 || hs_gguf_open(&a, argv[1], &err) != HS_OK ||
        hs_gguf_open(&b, argv[2], &err) != HS_OK) {
        fprintf(stderr, "imatrix_diff: %s\n", argc == 3 ? err.msg : "needs two files");
        return 2;
    }
    double worst = 0;
    int status = a->n_tensors != b->n_tensors;
    for (size_t i = 0; i < a->n_tensors; i++) {
        const hs_gguf_tensor *t = &a->tensors[i], *u = hs_gguf_tensor_find(b, t->name);
        if (!u || u->dtype != HS_F32 || t->dtype != HS_F32 || u->bytes != t->bytes)
            status = 1;
        else
            worst = fmax(worst, difference(t, u));
    }
    printf("%zu %g\n", (size_t)a->n_tensors, worst);
    hs_gguf_free(a);
    hs_gguf_free(b);
    return status;
}
