/* What a call keeps the host, without Python: bench/gpu/run.py calls these for a library and for a driver's graph. */
#include <stdint.h>
#include <time.h>

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

/* Microseconds of each of `count` calls of disc_run_on. */
int time_runs(int (*run_on)(void *, void *, const void *, int64_t, void *, int64_t), void *model, void *stream,
              const void *inputs, int64_t num_inputs, void *outputs, int64_t num_outputs, double *times, int count) {
  for (int i = 0; i < count; ++i) {
    double begin = now();
    int status = run_on(model, stream, inputs, num_inputs, outputs, num_outputs);
    if (status)
      return status;
    times[i] = now() - begin;
  }
  return 0;
}

/* Microseconds of each of `count` calls of cuGraphLaunch. */
int time_launches(int (*launch)(void *, void *), void *graph, void *stream, double *times, int count) {
  for (int i = 0; i < count; ++i) {
    double begin = now();
    int status = launch(graph, stream);
    if (status)
      return status;
    times[i] = now() - begin;
  }
  return 0;
}
