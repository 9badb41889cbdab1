// Runs a region with oneDNN (version 2): products and convolutions with what follows them as post-ops.
//
// `init` reads the steps that __init__.py wrote. `run` looks for a plan for the extents and strides of its operands:
// the primitives and where their operands are. The last 64 plans are kept. Weights are put once into each format that a
// plan prefers. A plan does not change, and the memory between its primitives is the thread's.

#include <disc_backend.h>
#include <dnnl.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>

namespace {
using dnnl::algorithm;
using dnnl::memory;
using dims = memory::dims;

dnnl::engine &cpu() {
  static auto *engine = new dnnl::engine(dnnl::engine::kind::cpu, 0); // Models may outlive static objects.
  return *engine;
}

int64_t product(const dims &extents) {
  int64_t n = 1;
  for (int64_t extent : extents)
    n *= extent;
  return n;
}

dims rowMajor(const dims &extents) {
  dims strides(extents.size(), 1);
  for (size_t i = extents.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<int64_t>(extents[i], 1);
  return strides;
}

enum class Kind { None, Operand, Constant, Result, Temporary };

struct Ref {
  Kind kind = Kind::None;
  int64_t at = 0; // Which operand, constant or step; of a temporary the offset in the buffer.
};

struct Tensor : Ref {
  dims extents, strides;
  memory::desc format = {}; // If it has a format of oneDNN's own, and no strides.
  void *data = nullptr;     // Of a constant.
};

Tensor tensorOf(Ref ref, const disc_view &view) {
  return {ref, dims(view.dims, view.dims + view.rank), dims(view.strides, view.strides + view.rank), {}, view.data};
}

struct Step {
  std::string kind; // linear, matmul or conv
  Ref source, weights, bias;
  int64_t result, groups; // Which of the region's results it is, or -1.
  dims window[3];         // Strides, padding, dilation.
  std::vector<std::pair<algorithm, Ref>> posts;
};

using Arguments = std::vector<std::pair<int, Tensor>>;

struct Plan {
  std::vector<std::pair<dnnl::primitive, Arguments>> calls;
  std::vector<std::pair<int64_t, int64_t>> copies, zeros; // Operands to make dense, and to where; offsets and sizes.
  int64_t buffer = 0, scratchpad = 0;
};

/// Copies a view from dim `d` on; the result is the end of the copy.
char *gather(char *to, const char *from, const disc_view &view, int64_t d) {
  int64_t element = view.dtype % 256 / 8;
  if (d == view.rank)
    return static_cast<char *>(std::memcpy(to, from, size_t(element))) + element;
  for (int64_t i = 0; i < view.dims[d]; ++i)
    to = gather(to, from + i * view.strides[d] * element, view, d + 1);
  return to;
}

class Model {
public:
  explicit Model(const disc_backend_init &init);
  void run(const disc_backend_run &run);

private:
  friend class Planner;
  void fold(Step &step, const Ref (&norm)[4], float epsilon);
  Tensor packed(const Tensor &weights, const memory::desc &format);
  std::shared_ptr<Plan> plan(const disc_backend_run &run);

  memory::data_type type = memory::data_type::f32;
  std::vector<Tensor> constants;
  std::deque<std::vector<float>> folded;
  std::vector<Step> steps;
  std::mutex mutex; // For what follows.
  std::vector<std::pair<Tensor, memory>> copies;
  std::list<std::pair<dims, std::shared_ptr<Plan>>> plans; // The last used first.
};

/// Makes the plan for operands of given extents.
class Planner {
public:
  Planner(Model &model, const disc_backend_run &run) : model(model), run(run), plan(std::make_shared<Plan>()) {}

  std::shared_ptr<Plan> make() {
    for (const Step &step : model.steps)
      values.push_back(step.kind == "conv" ? convolution(step) : matmul(step));
    return plan;
  }

private:
  memory::desc md(const Tensor &tensor) const {
    return tensor.strides.empty() ? tensor.format : memory::desc(tensor.extents, model.type, tensor.strides);
  }

  memory::desc any(const dims &extents) const { return {extents, model.type, memory::format_tag::any}; }

  Tensor get(Ref ref) {
    if (ref.kind != Kind::Operand)
      return ref.kind == Kind::Constant ? model.constants[ref.at]
             : ref.kind == Kind::Result ? values[ref.at]
                                        : Tensor();
    Tensor tensor = tensorOf(ref, run.operands[ref.at]);
    // The stride of an extent of 1 means nothing here, but oneDNN checks it.
    for (int64_t i = int64_t(tensor.extents.size()) - 1, inner = 1; i >= 0; --i) {
      if (tensor.extents[i] == 1)
        tensor.strides[i] = inner;
      inner = std::max(inner, tensor.strides[i] * tensor.extents[i]);
    }
    return tensor;
  }

  Tensor temporary(const dims &extents, const dims &strides, const memory::desc &format = {}) {
    Tensor made{{Kind::Temporary, plan->buffer}, extents, strides, format};
    plan->buffer += (int64_t(md(made).get_size()) + 63) / 64 * 64;
    return made;
  }

  Tensor dense(const Tensor &tensor) {
    dims strides = rowMajor(tensor.extents);
    if (tensor.strides == strides || product(tensor.extents) == 0)
      return tensor;
    Tensor made = temporary(tensor.extents, strides);
    if (tensor.kind == Kind::Operand) // oneDNN does not repeat elements.
      plan->copies.emplace_back(tensor.at, made.at);
    else
      reorder(tensor, made);
    return made;
  }

  /// The tensor such that a product reads it fast: one of the last two dims is dense, and nothing overlaps.
  Tensor matrices(const Tensor &tensor) {
    const dims &s = tensor.strides;
    bool isRegular = !s.empty() && (s.back() == 1 || s[s.size() - 2] == 1) && std::count(s.begin(), s.end(), 0) == 0;
    return isRegular && memory::desc(tensor.extents, model.type, s, true) ? tensor : dense(tensor);
  }

  /// The tensor in a format that a primitive chose.
  Tensor in(const memory::desc &format, const Tensor &tensor) {
    if (md(tensor) == format)
      return tensor;
    if (tensor.kind == Kind::Constant)
      return model.packed(tensor, format);
    Tensor made = temporary(tensor.extents, {}, format);
    reorder(tensor, made);
    return made;
  }

  void reorder(const Tensor &from, const Tensor &to) {
    dnnl::reorder::primitive_desc desc(cpu(), md(from), cpu(), md(to), attributes({}, {}));
    add(dnnl::reorder(desc), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}, desc.scratchpad_desc());
  }

  void add(dnnl::primitive primitive, Arguments arguments, const memory::desc &scratchpad) {
    plan->scratchpad = std::max(plan->scratchpad, int64_t(scratchpad.get_size()));
    arguments.push_back({DNNL_ARG_SCRATCHPAD, {{}, {}, {}, scratchpad}});
    for (auto &[argument, tensor] : arguments)
      tensor.format = md(tensor);
    plan->calls.emplace_back(std::move(primitive), std::move(arguments));
  }

  /// Where a step's result is: a result of the region, or memory of its own.
  Tensor destination(const Step &step, const dims &extents) {
    if (step.result < 0)
      return temporary(extents, rowMajor(extents));
    Tensor made = tensorOf({Kind::Operand, run.num_inputs + step.result}, run.operands[run.num_inputs + step.result]);
    if (made.extents != extents)
      throw std::runtime_error("the extents of result " + std::to_string(step.result) + " are not those of oneDNN");
    made.strides = rowMajor(extents);
    return made;
  }

  dnnl::primitive_attr attributes(const Step &step, const memory::desc &result) {
    dnnl::primitive_attr attr;
    dnnl::post_ops posts;
    for (auto [kind, other] : step.posts)
      if (kind != algorithm::binary_add)
        posts.append_eltwise(1.0f, kind, kind == algorithm::eltwise_swish, 0.0f);
      else if (result.data.format_kind != dnnl_format_kind_any)
        posts.append_binary(kind, result);
    attr.set_post_ops(posts);
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attr;
  }

  template <typename Primitive, typename Desc>
  void call(const Step &step, const Desc &desc, const Tensor &x, const Tensor &w, const Tensor &bias,
            const Tensor &to) {
    Arguments arguments = {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, in(desc.weights_desc(), w)}, {DNNL_ARG_DST, to}};
    if (bias.kind != Kind::None)
      arguments.emplace_back(DNNL_ARG_BIAS, bias);
    for (size_t i = 0; i < step.posts.size(); ++i)
      if (Ref other = step.posts[i].second; other.kind != Kind::None) {
        Tensor tensor = get(other);
        tensor = in(md(to), tensor.strides.empty() ? tensor : dense(tensor));
        arguments.emplace_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(int(i)) | DNNL_ARG_SRC_1, tensor);
      }
    add(Primitive(desc), std::move(arguments), desc.scratchpad_desc());
  }

  Tensor matmul(const Step &step) {
    Tensor x = get(step.source), w = get(step.weights), bias = get(step.bias);
    if (step.kind == "linear") {
      std::swap(w.extents[0], w.extents[1]);
      std::swap(w.strides[0], w.strides[1]);
    }
    size_t rank = std::max(x.extents.size(), w.extents.size());
    x = matrices(x);
    w = matrices(w);
    for (Tensor *tensor : {&x, &w, &bias})
      while (tensor->kind != Kind::None && tensor->extents.size() < rank) {
        tensor->strides.insert(tensor->strides.begin(), std::max<int64_t>(product(tensor->extents), 1));
        tensor->extents.insert(tensor->extents.begin(), 1);
      }
    dims extents = x.extents;
    for (size_t i = 0; i + 2 < rank; ++i)
      extents[i] = x.extents[i] == 1 ? w.extents[i] : x.extents[i];
    extents.back() = w.extents.back();
    Tensor to = destination(step, extents);
    if (product(extents) == 0)
      return to;
    if (x.extents.back() == 0) { // The sum of no products.
      x.extents.back() = w.extents[rank - 2] = 1;
      for (Tensor *tensor : {&x, &w}) {
        *tensor = temporary(tensor->extents, rowMajor(tensor->extents));
        plan->zeros.emplace_back(tensor->at, plan->buffer - tensor->at);
      }
    }
    memory::desc weights = w.kind == Kind::Constant ? any(w.extents) : md(w);
    dnnl::matmul::desc desc(md(x), weights, md(bias), md(to)); // No bias has no format.
    dnnl::matmul::primitive_desc made(desc, attributes(step, md(to)), cpu());
    call<dnnl::matmul>(step, made, x, w, bias, to);
    return to;
  }

  Tensor convolution(const Step &step) {
    Tensor x = get(step.source), w = get(step.weights), bias = get(step.bias);
    dims extents = {x.extents[0], w.extents[0]}, dilation = step.window[2];
    for (size_t d = 0; d < 2; ++d) {
      int64_t span = (w.extents[2 + d] - 1) * dilation[d]-- + 1; // oneDNN counts the elements between.
      extents.push_back((x.extents[2 + d] + 2 * step.window[1][d] - span) / step.window[0][d] + 1);
    }
    Tensor result = destination(step, extents);
    if (product(extents) == 0)
      return result;
    if (product(x.extents) == 0)
      throw std::runtime_error("a convolution of images without elements");
    if (step.groups > 1) {
      w.extents.insert(w.extents.begin(), step.groups);
      w.extents[1] /= step.groups;
      w.strides = rowMajor(w.extents);
    }
    auto find = [&](const memory::desc &to) {
      dnnl::convolution_forward::desc desc(dnnl::prop_kind::forward_inference, algorithm::convolution_direct,
                                           any(x.extents), any(w.extents), md(bias), to, step.window[0], dilation,
                                           step.window[1], step.window[1]);
      return dnnl::convolution_forward::primitive_desc(desc, attributes(step, to), cpu());
    };
    auto made = find(any(extents));
    memory::desc format = made.dst_desc();
    if (made = find(format); md(result) != format)
      result = temporary(extents, {}, format);
    x = in(made.src_desc(), x.strides.empty() ? x : dense(x));
    call<dnnl::convolution_forward>(step, made, x, w, bias, result);
    if (step.result >= 0 && result.kind == Kind::Temporary)
      reorder(result, destination(step, extents));
    return result;
  }

  Model &model;
  const disc_backend_run &run;
  std::shared_ptr<Plan> plan;
  std::vector<Tensor> values; // The results of the steps so far.
};

/// A constant in a format of oneDNN's.
Tensor Model::packed(const Tensor &weights, const memory::desc &format) {
  auto made = std::find_if(copies.begin(), copies.end(), [&](const auto &copy) {
    return copy.first.at == weights.at && copy.first.strides == weights.strides && copy.second.get_desc() == format;
  });
  if (made == copies.end()) {
    memory to(format, cpu()), from({weights.extents, type, weights.strides}, cpu(), weights.data);
    dnnl::stream stream(cpu());
    dnnl::reorder(from, to).execute(stream, from, to);
    stream.wait();
    made = copies.emplace(copies.end(), weights, to);
  }
  return {weights, weights.extents, {}, format, made->second.get_data_handle()};
}

/// Batch norm of a model that does not train: (x - mean) * gamma / sqrt(var + epsilon) + beta, in what is before it.
void Model::fold(Step &step, const Ref (&norm)[4], float epsilon) {
  auto at = [&](Ref ref, int64_t i, float otherwise) {
    return ref.kind == Kind::None ? otherwise : static_cast<const float *>(constants[ref.at].data)[i];
  };
  Tensor w = constants[step.weights.at], b = w;
  int64_t channels = w.extents[0], each = product(w.extents) / channels;
  std::vector<float> &weights = folded.emplace_back(), &bias = folded.emplace_back();
  for (int64_t c = 0; c < channels; ++c) {
    float scale = at(norm[0], c, 1) / std::sqrt(at(norm[3], c, 1) + epsilon);
    for (int64_t i = 0; i < each; ++i)
      weights.push_back(at(step.weights, c * each + i, 0) * scale);
    bias.push_back((at(step.bias, c, 0) - at(norm[2], c, 0)) * scale + at(norm[1], c, 0));
  }
  w.at = step.weights.at = int64_t(constants.size());
  step.bias = {Kind::Constant, w.at + 1};
  w.data = weights.data();
  constants.push_back(w);
  constants.push_back({step.bias, {channels}, {1}, {}, bias.data()});
}

std::istream &operator>>(std::istream &in, Ref &ref) {
  char kind = 0;
  in >> kind >> ref.at;
  ref.kind = kind == 'i' ? Kind::Operand : kind == 'c' ? Kind::Constant : kind == 'r' ? Kind::Result : Kind::None;
  return in;
}

Model::Model(const disc_backend_init &init) {
  using a = algorithm;
  static const std::map<std::string, a> kAlgorithms = {{"add", a::binary_add},
                                                       {"gelu", a::eltwise_gelu_erf},
                                                       {"relu", a::eltwise_relu},
                                                       {"gelu_tanh", a::eltwise_gelu_tanh},
                                                       {"silu", a::eltwise_swish}};
  for (int64_t i = 0; i < init.num_constants; ++i)
    constants.push_back(tensorOf({Kind::Constant, i}, init.constants[i]));
  std::istringstream in(init.region);
  std::string word;
  if (in >> word && word == "bfloat16")
    type = memory::data_type::bf16;
  while (in >> word) {
    Step step;
    step.kind = word;
    in >> step.result >> step.source >> step.weights >> step.bias >> step.groups;
    for (dims &window : step.window)
      in >> window.emplace_back() >> window.emplace_back();
    while (in >> word && word != ";")
      if (word == "norm") {
        Ref norm[4];
        float epsilon = 0;
        in >> norm[0] >> norm[1] >> norm[2] >> norm[3] >> epsilon;
        fold(step, norm, epsilon);
      } else {
        in >> step.posts.emplace_back(kAlgorithms.at(word), Ref()).second;
      }
    steps.push_back(std::move(step));
  }
}

std::shared_ptr<Plan> Model::plan(const disc_backend_run &run) {
  dims key;
  for (int64_t i = 0; i < run.num_inputs; ++i)
    for (const int64_t *numbers : {run.operands[i].dims, run.operands[i].strides})
      key.insert(key.end(), numbers, numbers + run.operands[i].rank);
  std::lock_guard<std::mutex> lock(mutex);
  auto at = std::find_if(plans.begin(), plans.end(), [&](const auto &plan) { return plan.first == key; });
  if (at != plans.end())
    plans.splice(plans.begin(), plans, at);
  else
    plans.emplace_front(key, Planner(*this, run).make());
  if (plans.size() > 64)
    plans.pop_back();
  return plans.front().second;
}

void Model::run(const disc_backend_run &run) {
  std::shared_ptr<Plan> plan = this->plan(run);
  thread_local std::vector<char> buffer;
  if (buffer.size() < size_t(plan->buffer + plan->scratchpad + 64))
    buffer.resize(size_t(plan->buffer + plan->scratchpad + 64));
  char *start = buffer.data() + (64 - reinterpret_cast<uintptr_t>(buffer.data()) % 64);
  for (auto [offset, size] : plan->zeros)
    std::memset(start + offset, 0, size_t(size));
  for (auto [operand, offset] : plan->copies)
    gather(start + offset, static_cast<const char *>(run.operands[operand].data), run.operands[operand], 0);
  auto place = [&](const Tensor &tensor) -> void * {
    if (tensor.kind == Kind::Operand || tensor.kind == Kind::Constant)
      return tensor.kind == Kind::Operand ? run.operands[tensor.at].data : tensor.data;
    return start + (tensor.kind == Kind::Temporary ? tensor.at : plan->buffer);
  };
  dnnl::stream stream(cpu());
  for (auto &[primitive, arguments] : plan->calls) {
    std::unordered_map<int, memory> memories;
    for (const auto &[argument, tensor] : arguments)
      memories.emplace(argument, memory(tensor.format, cpu(), place(tensor)));
    primitive.execute(stream, memories);
  }
  stream.wait();
}

/// Calls a function; an exception becomes the text of the error.
template <typename Function> int32_t guarded(char *error, size_t size, Function function) {
  try {
    function();
    return 0;
  } catch (const std::exception &e) {
    std::snprintf(error, size, "oneDNN: %s", e.what());
  } catch (...) {
    std::snprintf(error, size, "oneDNN: an unknown exception");
  }
  return 1;
}

int32_t init(const disc_backend_init *init, void **state) {
  return guarded(init->error, init->error_size, [&] { *state = new Model(*init); });
}

int32_t run(void *state, const disc_backend_run *run) {
  return guarded(run->error, run->error_size, [&] { static_cast<Model *>(state)->run(*run); });
}

void release(void *state) { delete static_cast<Model *>(state); }
} // namespace

extern "C" const disc_backend_table DISC_REGION;
const disc_backend_table DISC_REGION = {DISC_BACKEND_VERSION, sizeof(disc_backend_table), init, run, release};
