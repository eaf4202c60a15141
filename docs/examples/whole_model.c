/* Greedy decoding of a whole model from token ids.
       cc whole_model.c $(colibri-edge config --cflags --libs) -o whole_model
       ./whole_model model.colibri 8 1 2 3          prints the next 8 token ids after 1 2 3 */
#include <colibri.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: %s MODEL COUNT TOKEN...\n", argv[0]);
        return 2;
    }
    int count = atoi(argv[2]), n = argc - 3, code = 0;
    colibri_session_t *s = colibri_session_open(argv[1], 0, 0);
    int32_t *tokens = (int32_t *)malloc((size_t)n * sizeof *tokens);
    if (!s || !tokens) {
        fprintf(stderr, "cannot open: %s\n", colibri_last_error());
        free(tokens);
        return 1;
    }
    for (int i = 0; i < n; i++) tokens[i] = (int32_t)atoi(argv[3 + i]);
    code = -colibri_session_feed(s, tokens, n);
    for (int i = 0; i < count && !code; i++) {
        const float *logits = colibri_session_logits(s);
        int32_t best = 0;
        for (int32_t v = 1; v < colibri_session_vocab(s); v++)
            if (logits[v] > logits[best]) best = v;
        printf("%d%s", (int)best, i + 1 == count ? "\n" : " ");
        code = -colibri_session_feed(s, &best, 1);
    }
    if (code) fprintf(stderr, "failed with -%d: %s\n", code, colibri_last_error());
    free(tokens);
    colibri_session_close(s);
    return code;
}
