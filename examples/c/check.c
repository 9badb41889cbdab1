/* Runs the model at the shapes of a file that examples/build_library.py wrote, and compares with what PyTorch gave:
 *
 *   check expected.bin [library.so]
 *
 * With a second argument the library is loaded by its path rather than the one that the program is linked with.
 *
 * The file holds, for each shape: batch and length (int64); ids and mask (int64[batch, length]); the embeddings
 * (float32[batch, MINILM_OUTPUT_0_EXTENT_1]).
 */
#include <math.h>
#include <minilm.h>
#include <stdio.h>
#include <stdlib.h>

#define TOLERANCE 1e-5f

static int fail(const char *what) {
  fprintf(stderr, "check: %s\n", what);
  return 1;
}

/* The largest difference at one shape; negative if something failed, which has been said. */
static float run(disc_model *model, FILE *file, int64_t batch, int64_t length) {
  size_t tokens = (size_t)(batch * length), values = (size_t)minilm_output_0_elements(batch, length);
  int64_t *ids = malloc(2 * tokens * sizeof(int64_t));
  float *expected = malloc(2 * values * sizeof(float)), worst = -1;
  if (!ids || !expected) {
    fail("out of memory");
  } else if (fread(ids, sizeof(int64_t), 2 * tokens, file) != 2 * tokens ||
             fread(expected, sizeof(float), values, file) != values) {
    fail("the file of expected values ends early");
  } else if (minilm_run(model, batch, length, ids, ids + tokens, expected + values)) {
    fail(disc_last_error());
  } else {
    size_t i;
    /* Ends where one is no number. */
    for (i = 0, worst = 0; i < values && worst == worst; ++i)
      if (!(fabsf(expected[i] - expected[values + i]) <= worst))
        worst = fabsf(expected[i] - expected[values + i]);
  }
  free(ids);
  free(expected);
  return worst;
}

int main(int argc, char **argv) {
  disc_model *model;
  int64_t shape[2];
  int shapes = 0, wrong = 0;
  FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
  if (!file)
    return fail("usage: check expected.bin [library.so]");
  if (argc > 2 ? disc_load(argv[2], NULL, &model) : minilm_open(NULL, &model))
    return fail(disc_last_error());
  for (; fread(shape, sizeof(int64_t), 2, file) == 2; ++shapes) {
    float worst = run(model, file, shape[0], shape[1]);
    int good = worst >= 0 && worst <= TOLERANCE;
    wrong += !good;
    printf("%3d x %3d: %.1e%s\n", (int)shape[0], (int)shape[1], worst, good ? "" : "  WRONG");
    if (worst < 0)
      break;
  }
  fclose(file);
  if (disc_free(model))
    return fail(disc_last_error());
  printf("%d shapes, %d wrong\n", shapes, wrong);
  return shapes == 0 || wrong != 0;
}
