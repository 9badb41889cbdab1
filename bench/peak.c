// The arithmetic peak of this machine: fused multiply-adds on registers alone, enough of them at once to hide their
// latency. Prints the GFLOP/s of f32 that N threads reach together.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef __AVX512F__
enum { BYTES = 64, CHAINS = 24 };
#else
enum { BYTES = 32, CHAINS = 12 };
#endif
enum { LANES = BYTES / 4, STEPS = 1 << 22, TURNS = 12 };
typedef float Vector __attribute__((vector_size(BYTES)));

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void *work(void *result) {
  Vector sum[CHAINS], a = (Vector){0} + 0.999f, b = (Vector){0} + 0.001f;
  for (int j = 0; j < CHAINS; ++j)
    sum[j] = (Vector){0} + (float)j; // chains that differ, or one would do for all
  for (int i = 0; i < STEPS; ++i) {
    __asm__ volatile("" : "+v"(a), "+v"(b)); // or the compiler would do the sum once
#pragma GCC unroll 24
    for (int j = 0; j < CHAINS; ++j)
      sum[j] = sum[j] * a + b;
  }
  float total = 0;
  for (int j = 0; j < CHAINS; ++j)
    total += sum[j][0];
  *(volatile float *)result = total;
  return NULL;
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 1;
  pthread_t others[256];
  float results[256];
  double best = 1e9;
  for (int turn = 0; turn < TURNS; ++turn) {
    double start = now();
    for (int i = 1; i < threads; ++i)
      pthread_create(&others[i], NULL, work, &results[i]);
    work(&results[0]);
    for (int i = 1; i < threads; ++i)
      pthread_join(others[i], NULL);
    double took = now() - start;
    best = took < best ? took : best;
  }
  printf("%.1f\n", 2e-9 * STEPS * CHAINS * LANES * threads / best);
  return 0;
}
