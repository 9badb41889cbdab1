#include <cblas.h>
#include <disc_backend.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const float *data;
  int64_t rank, dims[8], strides[8];
} tensor;

#define CONSTANT(i) ((const tensor *)state)[i]
#define OPERAND(i) of(&run->operands[i])
#define NO_BIAS {(float[]){0}, 1, {1}, {1}}

static tensor of(const disc_view *view) {
  tensor t = {view->data, view->rank, {0}, {0}};
  memcpy(t.dims, view->dims, sizeof(int64_t) * view->rank);
  memcpy(t.strides, view->strides, sizeof(int64_t) * view->rank);
  return t;
}

/* The stride of the i-th last dim; 0 where the tensor is repeated. */
static int64_t stride(tensor t, int64_t i) {
  int64_t d = t.rank - 1 - i;
  return d < 0 || t.dims[d] == 1 ? 0 : t.strides[d];
}

typedef struct {
  const float *data;
  int transpose;
  int64_t stride;
  float *copy;
} matrix;

/* cblas reads matrices whose rows or columns have no gaps; others are copied. */
static matrix prepare(const float *data, int64_t rows, int64_t cols, int64_t down, int64_t right) {
  right = cols == 1 ? 1 : right;
  down = rows > 1 ? down : right == 1 ? cols : 1;
  if (right == 1 && down >= cols)
    return (matrix){data, CblasNoTrans, down, NULL};
  if (down == 1 && right >= rows)
    return (matrix){data, CblasTrans, right, NULL};
  float *copy = malloc(sizeof(float) * rows * cols);
  for (int64_t i = 0; copy && i < rows * cols; ++i)
    copy[i] = data[i / cols * down + i % cols * right];
  return (matrix){copy, CblasNoTrans, cols, copy};
}

static int32_t init(const disc_backend_init *init, void **state) {
  tensor *constants = *state = calloc(init->num_constants + 1, sizeof(tensor));
  for (int64_t i = 0; constants && i < init->num_constants; ++i)
    constants[i] = of(&init->constants[i]);
  return constants == NULL;
}

static int32_t run(void *state, const disc_backend_run *run) {
  tensor a = LEFT, b = RIGHT, bias = BIAS, y = OPERAND(run->num_inputs);
  const int64_t *last = &y.dims[y.rank - 1];
  int64_t m = last[-1], n = *last, k = a.dims[a.rank - 1], down = stride(a, 1), batch = 1, first = 2;
  for (; first < y.rank; m *= last[-first++]) { /* Matrices that are multiplied by the same one become one. */
    if (last[-first] != 1 && (stride(b, first) || (m != 1 && stride(a, first) != down * m)))
      break;
    down = m == 1 ? stride(a, first) : down;
  }
  for (int64_t i = first; i < y.rank; ++i)
    batch *= last[-i];
  if (m > INT32_MAX || n > INT32_MAX || k > INT32_MAX)
    return snprintf(run->error, run->error_size, "an extent is larger than BLAS allows");
  float *out = (float *)y.data;
  for (int64_t i = 0; i < batch * m; ++i)
    for (int64_t j = 0; j < n; ++j)
      out[i * n + j] = bias.data[j * stride(bias, 0)];
  for (int64_t at = 0; at < batch && m && n && k; ++at) {
    const float *left = a.data, *right = b.data;
    for (int64_t i = first, rest = at; i < y.rank; rest /= last[-i++]) {
      left += rest % last[-i] * stride(a, i);
      right += rest % last[-i] * stride(b, i);
    }
    matrix l = prepare(left, m, k, down, stride(a, 0));
    matrix r = prepare(right, k, n, stride(b, 1 - TRANSPOSED), stride(b, TRANSPOSED));
    if (l.data && r.data)
      cblas_sgemm(CblasRowMajor, l.transpose, r.transpose, m, n, k, 1, l.data, l.stride, r.data, r.stride, 1,
                  out + at * m * n, n);
    free(l.copy);
    free(r.copy);
    if (!l.data || !r.data)
      return snprintf(run->error, run->error_size, "out of memory");
  }
  return 0;
}

const disc_backend_table DISC_REGION = {DISC_BACKEND_VERSION, sizeof(disc_backend_table), init, run, free};
