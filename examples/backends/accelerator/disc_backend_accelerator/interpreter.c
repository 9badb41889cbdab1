#include <disc_backend.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* JSON as DISC writes it, parsed in place. */

typedef struct json {
  const char *key, *text;
  double number; /* 1 for true */
  int64_t length;
  struct json *first, *next;
} json;

static const char *read_string(char **at) {
  char *text = *at + 1, *end = text;
  for (++*at; **at != '"'; *end++ = *(*at)++)
    *at += **at == '\\';
  ++*at;
  *end = 0;
  return text;
}

static json *read_json(char **at, json **unused) {
  json *value = (*unused)++, **end = &value->first;
  char open = **at, *past;
  if (open == '"') {
    value->text = read_string(at);
  } else if (open == '{' || open == '[') {
    for (++*at; *at += strspn(*at, ", "), **at != ']' && **at != '}'; end = &(*end)->next, ++value->length) {
      const char *key = open == '{' ? read_string(at) : "";
      *at += strspn(*at, ": ");
      *end = read_json(at, unused);
      (*end)->key = key;
    }
    ++*at;
  } else if (value->number = strtod(*at, &past), past != *at) {
    *at = past;
  } else { /* true, false, null */
    value->number = open == 't';
    *at += strspn(*at, "truefalsn");
  }
  return value;
}

static const json *get(const json *object, const char *key) {
  const json *member = object->first;
  while (member && strcmp(member->key, key))
    member = member->next;
  return member;
}

static const json *item(const json *list, int64_t i) {
  const json *value = list->first;
  while (i-- > 0)
    value = value->next;
  return value;
}

/* Tensors in the accelerator's memory, row-major without gaps. */

typedef struct {
  float *data;
  int64_t rank, dims[8], size;
} tensor;

static tensor shaped(float *data, int64_t rank, const int64_t *dims) {
  tensor t = {data, rank, {0}, 1};
  for (int64_t d = 0; d < rank; ++d)
    t.size *= t.dims[d] = dims[d];
  return t;
}

static void upload(const tensor *t, const disc_view *from) {
  for (int64_t i = 0; i < t->size; ++i) {
    int64_t offset = 0, rest = i;
    for (int64_t d = t->rank; d-- > 0; rest /= t->dims[d])
      offset += rest % t->dims[d] * from->strides[d];
    t->data[i] = ((const float *)from->data)[offset];
  }
}

/* The element of x that belongs to the i-th one of y; dims of extent 1 are repeated. */
static float element(const tensor *x, const tensor *y, int64_t i) {
  int64_t offset = 0, stride = 1;
  for (int64_t d = 1; d <= x->rank; stride *= x->dims[x->rank - d], i /= y->dims[y->rank - d], ++d)
    offset += x->dims[x->rank - d] == 1 ? 0 : i % y->dims[y->rank - d] * stride;
  return x->data[offset];
}

/* Operations: the tensors among the arguments (NULL for the others), all arguments, and the result. */

static void linear(const tensor *const *in, const json *args, tensor *y) {
  int64_t n = in[1]->dims[0], k = in[1]->dims[1];
  for (int64_t i = 0; i < y->size; ++i) {
    double sum = in[2] ? in[2]->data[i % n] : 0;
    for (int64_t j = 0; j < k; ++j)
      sum += in[0]->data[i / n * k + j] * in[1]->data[i % n * k + j];
    y->data[i] = (float)sum;
  }
}

static void relu(const tensor *const *in, const json *args, tensor *y) {
  for (int64_t i = 0; i < y->size; ++i)
    y->data[i] = in[0]->data[i] < 0 ? 0 : in[0]->data[i];
}

static void gelu(const tensor *const *in, const json *args, tensor *y) {
  for (int64_t i = 0; i < y->size; ++i)
    y->data[i] = (float)(0.5 * in[0]->data[i] * (1 + erf(in[0]->data[i] * 0.7071067811865476)));
}

static void layer_norm(const tensor *const *in, const json *args, tensor *y) {
  int64_t n = y->dims[y->rank - 1];
  for (int64_t i = 0; i < y->size; i += n) {
    double mean = 0, variance = 0;
    for (int64_t j = 0; j < n; ++j)
      mean += in[0]->data[i + j] / n;
    for (int64_t j = 0; j < n; ++j)
      variance += (in[0]->data[i + j] - mean) * (in[0]->data[i + j] - mean) / n;
    double scale = 1 / sqrt(variance + item(args, 4)->number);
    for (int64_t j = 0; j < n; ++j)
      y->data[i + j] =
          (float)((in[0]->data[i + j] - mean) * scale * (in[2] ? in[2]->data[j] : 1) + (in[3] ? in[3]->data[j] : 0));
  }
}

static void add(const tensor *const *in, const json *args, tensor *y) {
  for (int64_t i = 0; i < y->size; ++i)
    y->data[i] = element(in[0], y, i) + (in[1] ? element(in[1], y, i) : (float)item(args, 1)->number);
}

static void multiply(const tensor *const *in, const json *args, tensor *y) {
  for (int64_t i = 0; i < y->size; ++i)
    y->data[i] = element(in[0], y, i) * (in[1] ? element(in[1], y, i) : (float)item(args, 1)->number);
}

static const struct {
  const char *name;
  void (*run)(const tensor *const *in, const json *args, tensor *y);
} kernels[] = {{"aten.linear", linear},         {"aten.relu", relu},          {"aten.gelu", gelu},
               {"aten.layer_norm", layer_norm}, {"aten.add.Tensor", add},     {"aten.add.Scalar", add},
               {"aten.mul.Tensor", multiply},   {"aten.mul.Scalar", multiply}};

/* A region and its parameters. */

typedef struct {
  const json *region, *operations;
  tensor *constants;
} program;

static int32_t init(const disc_backend_init *init, void **state) {
  size_t length = strlen(init->region) + 1; /* More than there are values. */
  program *p = *state = calloc(1, sizeof(program) + init->num_constants * sizeof(tensor) + length * (sizeof(json) + 1));
  if (!p)
    return snprintf(init->error, init->error_size, "out of memory");
  p->constants = (tensor *)(p + 1);
  for (int64_t i = 0; i < init->num_constants; ++i)
    p->constants[i] = shaped(init->constants[i].data, init->constants[i].rank, init->constants[i].dims);
  json *nodes = (json *)(p->constants + init->num_constants);
  char *text = memcpy(nodes + length, init->region, length);
  p->region = read_json(&text, &nodes);
  p->operations = get(p->region, "operations");
  return 0;
}

/* The values of a call: the inputs, then the results of the operations. */
static const tensor *find(const program *p, const disc_backend_run *run, const tensor *values, const json *arg) {
  const json *input = get(arg, "input"), *constant = get(arg, "constant"), *operation = get(arg, "operation");
  return input       ? &values[(int64_t)input->number]
         : constant  ? &p->constants[(int64_t)constant->number]
         : operation ? &values[run->num_inputs + (int64_t)operation->number]
                     : NULL;
}

/* The extents that depend on sizes are among the numbers, by their text. */
static tensor result_of(const program *p, const disc_backend_run *run, const json *operation) {
  const json *dims = get(item(get(operation, "results"), 0), "dims"), *numbers = get(p->region, "numbers");
  int64_t extents[8];
  for (int64_t d = 0; d < dims->length; ++d) {
    const json *dim = item(dims, d);
    int64_t number = 0;
    while (dim->text && strcmp(item(numbers, number)->text, dim->text))
      ++number;
    extents[d] = dim->text ? run->numbers[number] : (int64_t)dim->number;
  }
  return shaped(NULL, dims->length, extents);
}

static int32_t run(void *state, const disc_backend_run *run) {
  const program *p = state;
  int64_t count = run->num_inputs + p->operations->length, size = 0;
  tensor *values = calloc(count, sizeof(tensor));
  for (int64_t i = 0; values && i < count; size += values[i++].size)
    values[i] = i < run->num_inputs ? shaped(NULL, run->operands[i].rank, run->operands[i].dims)
                                    : result_of(p, run, item(p->operations, i - run->num_inputs));
  float *memory = values ? malloc(sizeof(float) * size + 1) : NULL, *unused = memory;
  for (int64_t i = 0; memory && i < count; unused += values[i++].size) {
    values[i].data = unused;
    if (i < run->num_inputs) {
      upload(&values[i], &run->operands[i]);
      continue;
    }
    const json *operation = item(p->operations, i - run->num_inputs), *args = get(operation, "args");
    const tensor *in[8] = {NULL};
    for (int64_t a = 0; a < args->length; ++a)
      in[a] = find(p, run, values, item(args, a));
    int64_t k = 0;
    while (strcmp(kernels[k].name, get(operation, "name")->text))
      ++k;
    kernels[k].run(in, args, &values[i]);
  }
  for (int64_t i = 0; memory && i < run->num_results; ++i) {
    const tensor *from =
        &values[run->num_inputs + (int64_t)get(item(get(p->region, "results"), i), "operation")->number];
    memcpy(run->operands[run->num_inputs + i].data, from->data, sizeof(float) * from->size);
  }
  free(memory);
  free(values);
  return memory ? 0 : snprintf(run->error, run->error_size, "out of memory");
}

const disc_backend_table DISC_REGION = {DISC_BACKEND_VERSION, sizeof(disc_backend_table), init, run, free};
