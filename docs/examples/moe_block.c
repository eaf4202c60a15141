/* One forward pass of a MoE block.
       cc moe_block.c $(colibri-edge config --cflags --libs) -o moe_block
       ./moe_block block.colibri 3 out.f32
   Fills `batch` tokens with a fixed pattern, computes, writes the outputs as raw float32 and prints the first ones. */
#include <colibri.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "block.colibri";
    int batch = argc > 2 ? atoi(argv[2]) : 1, code = 1;

    colibri_model_t *model = colibri_init_model(path, batch > 0 ? batch : 1);
    if (!model) {
        fprintf(stderr, "cannot open: %s\n", colibri_last_error());
        return 1;
    }
    if (colibri_forward(model, NULL, NULL, 0)) { /* the dry run */
        fprintf(stderr, "not usable: %s\n", colibri_last_error());
        colibri_free(model);
        return 1;
    }

    size_t hidden = (size_t)colibri_hidden_size(model), n = hidden * (size_t)batch;
    float *in = (float *)malloc((n ? n : 1) * sizeof(float)), *out = (float *)malloc((n ? n : 1) * sizeof(float));
    if (in && out) {
        for (size_t i = 0; i < n; i++) in[i] = (float)((int)(i * 37 % 101) - 50) / 50.0f;
        code = -colibri_forward(model, in, out, batch);
        if (code) fprintf(stderr, "forward failed with -%d: %s\n", code, colibri_last_error());
    }
    if (code == 0) {
        for (size_t i = 0; i < hidden && i < 8; i++) printf("%.6g%s", (double)out[i], i == 7 || i + 1 == hidden ? "\n" : " ");
        FILE *f = argc > 3 ? fopen(argv[3], "wb") : NULL;
        if (f) {
            fwrite(out, sizeof(float), n, f);
            fclose(f);
        }
    }
    free(in);
    free(out);
    colibri_free(model);
    return code;
}
