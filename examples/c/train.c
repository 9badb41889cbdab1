/* Trains the network of examples/build_trainer.py, on a machine without Python:
 *
 *   train batches.bin state.safetensors [learning rate]
 *
 * Each batch is a step. If there is a file of state, training goes on from it; the state is saved to it at the end. The
 * file of batches holds for each: the number of rows (int64), x (float32[rows, 6]), y (float32[rows, 3]).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trainer.h>

static int fail(const char *what) {
  fprintf(stderr, "train: %s\n", what);
  return 1;
}

/* One step on the next batch of the file; 0 if it was made, else 1, which has been said. */
static int step(disc_model *model, FILE *file, int64_t rows, const double *numbers, float *loss) {
  size_t inputs = (size_t)(rows * TRAINER_X_EXTENT_1), outputs = (size_t)(rows * TRAINER_Y_EXTENT_1);
  float *x = malloc((inputs + outputs) * sizeof(float)), norm;
  int failed = 1;
  if (!x)
    fail("out of memory");
  else if (fread(x, sizeof(float), inputs + outputs, file) != inputs + outputs)
    fail("the file of batches ends early");
  else if (trainer_run(model, rows, x, x + inputs, numbers, loss, &norm))
    fail(disc_last_error());
  else
    failed = 0;
  free(x);
  return failed;
}

int main(int argc, char **argv) {
  disc_model *model;
  double numbers[TRAINER_HYPER_PARAMETERS_COUNT];
  int64_t rows;
  int steps = 0, failed = 0;
  float loss = 0;
  FILE *file = argc > 2 ? fopen(argv[1], "rb") : NULL, *saved;
  if (!file)
    return fail("usage: train batches.bin state.safetensors [learning rate]");
  memcpy(numbers, trainer_hyper_parameters, sizeof(numbers));
  if (argc > 3)
    numbers[TRAINER_HYPER_PARAMETERS_LR] = atof(argv[3]);
  if (trainer_open(NULL, &model))
    return fail(disc_last_error());
  saved = fopen(argv[2], "rb");
  if (saved) {
    fclose(saved);
    if (disc_load_state(model, argv[2]))
      return fail(disc_last_error());
  }
  for (; !failed && fread(&rows, sizeof(rows), 1, file) == 1; ++steps) {
    failed = step(model, file, rows, numbers, &loss);
    if (!failed)
      printf("%d %.9g\n", steps, loss);
  }
  fclose(file);
  if (!failed && disc_save_state(model, argv[2]))
    failed = fail(disc_last_error());
  disc_free(model);
  return failed;
}
