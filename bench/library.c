/* What a program sees of a compiled library: time to load it, its share of memory, the cost of a call.
 * Used by `python -m bench.library`, which builds it; prints one line of JSON.
 *
 *   library load PATH EXTENT...    loads, then keeps the model until standard input ends
 *   library call PATH CALLS EXTENT...   calls the model with inputs of zeros
 *
 * EXTENT is the value of each symbol, in order; every input's dims must be symbols or numbers.
 */

#define _GNU_SOURCE
#include "disc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void check(disc_status status) {
  if (status == DISC_OK)
    return;
  fprintf(stderr, "%s: %s\n", disc_status_name(status), disc_last_error());
  exit(1);
}

/* A sum over the lines of /proc/self/smaps_rollup that begin with `key`, in KiB. */
static long smaps(const char *key) {
  char line[256];
  long sum = 0, value;
  FILE *file = fopen("/proc/self/smaps_rollup", "r");
  while (file && fgets(line, sizeof line, file))
    if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), "%ld", &value) == 1)
      sum += value;
  if (file)
    fclose(file);
  return sum;
}

static int64_t extent_of(disc_model *model, const char *dim, char **extents) {
  disc_model_spec spec;
  spec.size = sizeof spec;
  check(disc_describe(model, &spec));
  for (int64_t i = 0; i < spec.num_symbols; ++i) {
    disc_symbol_spec symbol;
    symbol.size = sizeof symbol;
    check(disc_describe_symbol(model, i, &symbol));
    if (strcmp(symbol.name, dim) == 0)
      return atoll(extents[i]);
  }
  return atoll(dim);
}

int main(int argc, char **argv) {
  if (argc < 3)
    return 2;
  const char *mode = argv[1], *path = argv[2];
  int calling = strcmp(mode, "call") == 0;
  char **extents = argv + (calling ? 4 : 3);
  disc_options options = disc_default_options();
  disc_model *model;
  double begin = now();
  check(disc_load(path, &options, &model));
  double load = now() - begin;

  disc_model_spec spec;
  spec.size = sizeof spec;
  check(disc_describe(model, &spec));
  DLTensor *inputs = calloc((size_t)spec.num_inputs, sizeof *inputs);
  const DLTensor **pointers = calloc((size_t)spec.num_inputs, sizeof *pointers);
  for (int64_t i = 0; i < spec.num_inputs; ++i) {
    disc_tensor_spec tensor;
    tensor.size = sizeof tensor;
    check(disc_describe_input(model, i, &tensor));
    inputs[i].device.device_type = kDLCPU;
    inputs[i].dtype = tensor.dtype;
    inputs[i].ndim = tensor.ndim;
    inputs[i].shape = calloc((size_t)tensor.ndim + 1, sizeof(int64_t));
    size_t bytes = tensor.dtype.bits / 8;
    for (int32_t d = 0; d < tensor.ndim; ++d) {
      inputs[i].shape[d] = extent_of(model, tensor.dims[d], extents);
      bytes *= (size_t)inputs[i].shape[d];
    }
    inputs[i].data = calloc(bytes + 1, 1);
    pointers[i] = &inputs[i];
  }
  disc_output *outputs = calloc((size_t)spec.num_outputs, sizeof *outputs);
  check(disc_run(model, pointers, spec.num_inputs, outputs, spec.num_outputs));

  if (!calling) {
    printf("{\"load_ms\": %.3f, \"rss_kib\": %ld, \"pss_kib\": %ld}\n", load / 1e6, smaps("Rss:"), smaps("Pss:"));
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) /* asked again when the others are there too */
      printf("{\"rss_kib\": %ld, \"pss_kib\": %ld, \"shared_kib\": %ld}\n", smaps("Rss:"), smaps("Pss:"),
             smaps("Shared_Clean:") + smaps("Shared_Dirty:")),
          fflush(stdout);
    return 0;
  }

  /* The caller's own outputs: what a service does. */
  DLTensor *results = calloc((size_t)spec.num_outputs, sizeof *results);
  for (int64_t i = 0; i < spec.num_outputs; ++i) {
    DLManagedTensorVersioned *made = outputs[i].managed;
    results[i] = made->dl_tensor;
    outputs[i].managed = NULL;
    outputs[i].tensor = &results[i];
  }
  int64_t **none = calloc((size_t)spec.num_outputs, sizeof *none);
  long calls = atol(argv[3]);
  double best_run = 1e18, best_shapes = 1e18;
  for (int round = 0; round < 20; ++round) {
    begin = now();
    for (long i = 0; i < calls; ++i)
      check(disc_run(model, pointers, spec.num_inputs, outputs, spec.num_outputs));
    double run = (now() - begin) / (double)calls;
    begin = now();
    for (long i = 0; i < calls; ++i)
      check(disc_output_shapes(model, pointers, spec.num_inputs, none, spec.num_outputs));
    double shapes = (now() - begin) / (double)calls;
    best_run = run < best_run ? run : best_run;
    best_shapes = shapes < best_shapes ? shapes : best_shapes;
  }
  printf("{\"run_ns\": %.1f, \"check_ns\": %.1f}\n", best_run, best_shapes);
  return 0;
}
