// Times paged attention on one GPU; README.md says what it prints.
//   bench_attention [few|many|wide|fp8 [NUMBER]]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "../graph_time.h"
#include "kernels/cuda/attention/attention.h"

namespace {

using namespace motley;
using namespace motley::kernels;

constexpr double bytes_per_us = 4.3e6;
constexpr double flop_per_us = 745e6;
constexpr std::int64_t page_tokens = 16;

class Memory {
 public:
  explicit Memory(std::size_t bytes) { CHECK_CUDA(cudaMalloc(&data_, bytes)); }
  template <class T>
  explicit Memory(const std::vector<T>& values) : Memory(values.size() * sizeof(T)) {
    CHECK_CUDA(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyDefault));
  }
  Memory(Memory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Memory& operator=(Memory&&) = delete;
  ~Memory() { cudaFree(data_); }
  template <class T = void>
  T* data() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

// Codes of numbers below 2, exponents near 127 and bf16 of small numbers alike.
__global__ void fill_codes(std::uint8_t* out, std::size_t count, unsigned seed) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += stride) {
    unsigned x = static_cast<unsigned>(i) * 0x9E3779B1U ^ seed;
    x ^= x >> 15;
    x *= 0x846CA68BU;
    out[i] = static_cast<std::uint8_t>(0x30 + (x >> 24) % 16);
  }
}

Memory random_codes(std::int64_t count, unsigned seed) {
  Memory memory(static_cast<std::size_t>(count));
  fill_codes<<<1056, 256>>>(memory.data<std::uint8_t>(), static_cast<std::size_t>(count), seed);
  CHECK_CUDA(cudaDeviceSynchronize());
  return memory;
}

__global__ void fill(__nv_bfloat16* out, std::size_t count, unsigned seed) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += stride) {
    unsigned x = static_cast<unsigned>(i) * 0x9E3779B1U ^ seed;
    x ^= x >> 16;
    x *= 0x7FEB352DU;
    x ^= x >> 15;
    x *= 0x846CA68BU;
    out[i] = __float2bfloat16(static_cast<float>(static_cast<int>(x >> 24) - 128) / 128.0F);
  }
}

Memory random_bf16(std::int64_t count, unsigned seed) {
  Memory memory(static_cast<std::size_t>(count) * 2);
  fill<<<1056, 256>>>(memory.data<__nv_bfloat16>(), static_cast<std::size_t>(count), seed);
  CHECK_CUDA(cudaDeviceSynchronize());
  return memory;
}

struct Model {
  const char* name;
  std::int64_t heads, kv_heads, key_width, value_width;
  std::int64_t window = 0;
  bool latent = false;
  bool gated = false;
};

constexpr Model qwen{"qwen3-30b-a3b", 32, 4, 128, 128};
constexpr Model gpt_oss{"gpt-oss-20b", 64, 8, 64, 64};
constexpr Model gpt_oss_window{"gpt-oss-20b w128", 64, 8, 64, 64, 128};
constexpr Model mixtral{"mixtral-8x7b", 32, 8, 128, 128};
constexpr Model lite_plain{"deepseek-lite plain", 16, 16, 192, 128};
constexpr Model lite{"deepseek-lite", 16, 1, 576, 512, 0, true};
constexpr Model deepseek{"deepseek-v3", 128, 1, 576, 512, 0, true};
constexpr Model qwen_next{"qwen3.5-35b-a3b", 16, 2, 256, 256, 0, false, true};
constexpr Model ungated{"qwen3.5 ungated", 16, 2, 256, 256};
constexpr Model gemma_window{"gemma-4-26b w1024", 16, 8, 256, 256, 1024};
constexpr Model gemma{"gemma-4-26b", 16, 2, 512, 512};

struct Load {
  std::int64_t sequences;
  std::int64_t rows;    // of each
  std::int64_t length;  // positions, the rows' own included
};

// The bytes of a token in one head's pages.
std::int64_t token_bytes(std::int64_t width, std::int64_t tail, bool codes) {
  return codes ? width - tail + 2 * tail + 1 : 2 * width;
}
std::int64_t tail_of(const Model& model) {
  return model.latent ? model.key_width - model.value_width : 0;
}

struct Cost {
  double bytes = 0;
  double flops = 0;
};

Cost cost_of(const Model& model, const Load& load, bool codes) {
  Cost cost;
  const auto kept =
      static_cast<double>(token_bytes(model.key_width, tail_of(model), codes) +
                          (model.latent ? 0 : token_bytes(model.value_width, 0, codes)));
  double read = static_cast<double>(load.length);
  if (model.window > 0) read = std::min(read, static_cast<double>(model.window + load.rows - 1));
  double seen = 0;  // positions, summed over rows
  for (std::int64_t row = 0; row < load.rows; ++row) {
    const auto length = static_cast<double>(load.length - row);
    seen += model.window > 0 ? std::min(length, static_cast<double>(model.window)) : length;
  }
  const auto sequences = static_cast<double>(load.sequences);
  const auto heads = static_cast<double>(model.heads);
  cost.bytes = sequences * (read * static_cast<double>(model.kv_heads) * kept +
                            static_cast<double>(load.rows) * heads *
                                static_cast<double>(4 * model.key_width + 2 * model.value_width +
                                                    (model.gated ? 4 * model.value_width : 0)));
  cost.flops =
      sequences * seen * heads * 2 * static_cast<double>(model.key_width + model.value_width);
  return cost;
}

double median_us(const std::vector<Attention>& layers) {
  return bench::graph_time(static_cast<int>(layers.size()), 11, [&](int i, StreamHandle stream) {
    cuda::attention(layers[static_cast<std::size_t>(i)], stream);
  });
}

int only = -1;  // the number of the load to time; -1: all

struct How {
  bool batch_invariant = false;
  bool codes = false;
};

void print_line(const Model& model, const Load& load, const How& how, double us) {
  const Cost cost = cost_of(model, load, how.codes);
  const double floor = std::max(cost.bytes / bytes_per_us, cost.flops / flop_per_us);
  std::printf(
      "%-20s %4lld x %5lld rows, %6lld positions %-9s %9.1f us  floor %8.1f  x %5.2f  %5.2f TB/s "
      "%6.1f TFLOP/s\n",
      model.name, static_cast<long long>(load.sequences), static_cast<long long>(load.rows),
      static_cast<long long>(load.length),
      how.codes             ? "fp8"
      : how.batch_invariant ? "batch-invariant"
                            : "",
      us, floor, us / floor, cost.bytes / us / 1e6, cost.flops / us / 1e6);
  std::fflush(stdout);
}

void time_load(const Model& model, const Load& load, const How& how) {
  static int number = 0;
  if (const int own = number++; only >= 0 && own != only) return;
  const std::int64_t table_stride = (load.length + page_tokens - 1) / page_tokens;
  const std::int64_t pages = load.sequences * table_stride;
  const std::int64_t rows = load.sequences * load.rows;
  std::vector<std::int32_t> begins;
  std::vector<std::int32_t> positions;
  for (std::int64_t s = 0; s <= load.sequences; ++s)
    begins.push_back(static_cast<std::int32_t>(s * load.rows));
  for (std::int64_t row = 0; row < rows; ++row)
    positions.push_back(static_cast<std::int32_t>(load.length - load.rows + row % load.rows));
  std::vector<std::int32_t> order(static_cast<std::size_t>(pages));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, std::mt19937(1));

  const Memory device_begins(begins);
  const Memory device_positions(positions);
  const Memory table(order);
  const Memory q = random_bf16(rows * model.heads * model.key_width, 7);
  const Memory out(static_cast<std::size_t>(rows * model.heads * model.value_width * 2));
  // Next to the queries, as q_proj computes them.
  const std::int64_t gate_columns = model.gated ? 2 * model.value_width : 0;  // of a head
  const Memory gates(static_cast<std::size_t>(rows * model.heads * gate_columns) * 4);
  if (model.gated)
    CHECK_CUDA(cudaMemset(gates.data(), 0,
                          static_cast<std::size_t>(rows * model.heads * gate_columns) * 4));
  const auto size = cuda::attention_scratch({.sequences = load.sequences,
                                             .heads = model.heads,
                                             .kv_heads = model.kv_heads,
                                             .value_width = model.value_width},
                                            bench::default_stream());
  const Memory partials(static_cast<std::size_t>(size.partials) * 4);
  const Memory counters(static_cast<std::size_t>(size.counters) * 4);
  CHECK_CUDA(cudaMemset(counters.data(), 0, static_cast<std::size_t>(size.counters) * 4));

  const std::int64_t tokens = pages * page_tokens * model.kv_heads;
  const std::int64_t layer_bytes =
      tokens * (token_bytes(model.key_width, tail_of(model), how.codes) +
                (model.latent ? 0 : token_bytes(model.value_width, 0, how.codes)));
  const auto count = std::clamp<std::int64_t>((std::int64_t{400} << 20) / layer_bytes, 3, 40);
  std::vector<Memory> kept;
  std::vector<Attention> layers;
  for (std::int64_t i = 0; i < count; ++i) {
    // Codes, their tail, and exponents.
    const auto codes_of = [&](std::int64_t width, std::int64_t tail) {
      const std::int64_t bytes =
          page_tokens * model.kv_heads * token_bytes(width, tail, true);  // of a page
      kept.push_back(random_codes(pages * bytes, static_cast<unsigned>(kept.size())));
      auto* const data = kept.back().data<std::uint8_t>();
      return Pages{.data = data,
                   .type = DType::f8_e4m3,
                   .page_stride = bytes,
                   .token_stride = model.kv_heads * (width - tail),
                   .head_stride = width - tail,
                   .exponents = data + bytes - page_tokens * model.kv_heads};
    };
    const auto pages_of = [&](std::int64_t width, std::int64_t tail) {
      if (how.codes) return codes_of(width, tail);
      kept.push_back(random_bf16(tokens * width, static_cast<unsigned>(kept.size())));
      return Pages{.data = kept.back().data(),
                   .type = DType::bf16,
                   .page_stride = page_tokens * model.kv_heads * width,
                   .token_stride = model.kv_heads * width,
                   .head_stride = width};
    };
    const std::int64_t tail = how.codes ? tail_of(model) : 0;
    const Pages keys = pages_of(model.key_width, tail);
    const Pages behind{
        .data = static_cast<std::uint8_t*>(keys.data) + page_tokens * (model.key_width - tail),
        .type = DType::bf16,
        .page_stride = keys.page_stride / 2,
        .token_stride = tail,
        .head_stride = tail};
    layers.push_back({.sequences = {.count = load.sequences,
                                    .seq_begin = device_begins.data<std::int32_t>(),
                                    .positions = device_positions.data<std::int32_t>(),
                                    .rows = rows,
                                    .max_rows = load.rows,
                                    .least_rows = load.rows},
                      .table = {table.data<std::int32_t>(), table_stride, page_tokens},
                      .k = keys,
                      .v = model.latent ? keys : pages_of(model.value_width, 0),
                      .shared_k = tail > 0 ? behind : Pages{},
                      .shared_width = tail,
                      .heads = model.heads,
                      .kv_heads = model.kv_heads,
                      .key_width = model.key_width,
                      .value_width = model.value_width,
                      .scale = 0.1F,
                      .window = model.window,
                      .gates = {.data = model.gated ? gates.data<float>() : nullptr,
                                .stride = model.heads * gate_columns,
                                .head_stride = gate_columns},
                      .q = q.data(),
                      .q_type = DType::bf16,
                      .q_stride = model.heads * model.key_width,
                      .q_head_stride = model.key_width,
                      .out = out.data(),
                      .out_type = DType::bf16,
                      .out_stride = model.heads * model.value_width,
                      .out_head_stride = model.value_width,
                      .scratch = {partials.data<float>(), size.partials,
                                  counters.data<std::int32_t>(), size.counters},
                      .batch_invariant = how.batch_invariant});
  }
  print_line(model, load, how, median_us(layers));
}

void time_few() {
  for (const std::int64_t batch : {1, 8, 32, 64, 128, 256}) time_load(qwen, {batch, 1, 1088}, {});
  time_load(qwen, {1, 1, 32768}, {});
  time_load(qwen, {8, 1, 16384}, {});
  for (const std::int64_t batch : {1, 64}) {
    time_load(mixtral, {batch, 1, 1088}, {});
    time_load(gpt_oss, {batch, 1, 1088}, {});
    time_load(gpt_oss_window, {batch, 1, 1088}, {});
    time_load(lite, {batch, 1, 1088}, {});
    time_load(deepseek, {batch, 1, 1088}, {});
  }
  time_load(lite, {64, 1, 1088}, {.batch_invariant = true});
}

void time_many() {
  for (const How how : {How{}, How{.batch_invariant = true}}) {
    time_load(qwen, {8, 1024, 1024}, how);
    time_load(qwen, {1, 8192, 8192}, how);
    time_load(qwen, {1, 512, 8192}, how);
    time_load(gpt_oss, {8, 1024, 1024}, how);
    time_load(gpt_oss_window, {8, 1024, 1024}, how);
    time_load(lite_plain, {4, 2048, 2048}, how);
  }
  time_load(lite, {4, 2048, 2048}, {});
}

// Heads of 256 and of 512.
void time_wide() {
  for (const bool codes : {false, true}) {
    for (const std::int64_t batch : {1, 8, 64})
      for (const Model& model : {qwen_next, ungated, gemma_window, gemma})
        time_load(model, {batch, 1, 4096}, {.codes = codes});
    for (const Model& model : {qwen_next, gemma}) {
      time_load(model, {1, 1, 32768}, {.codes = codes});
      time_load(model, {64, 1, 1088}, {.codes = codes});
    }
    time_load(qwen_next, {8, 4, 4096}, {.codes = codes});
  }
  for (const How how : {How{}, How{.batch_invariant = true}, How{.codes = true}}) {
    for (const Model& model : {qwen_next, ungated, gemma_window, gemma}) {
      time_load(model, {8, 1024, 1024}, how);
      time_load(model, {1, 8192, 8192}, how);
      time_load(model, {1, 512, 8192}, how);
    }
  }
}

// Keys and values in bf16, and the same as codes.
void time_codes() {
  const auto both = [](const Model& model, const Load& load) {
    time_load(model, load, {});
    time_load(model, load, {.codes = true});
  };
  both(qwen, {32, 1, 32768});
  for (const std::int64_t batch : {1, 8, 64}) both(qwen, {batch, 1, 1088});
  both(qwen, {1, 1, 32768});
  both(mixtral, {32, 1, 8192});
  both(gpt_oss, {32, 1, 8192});
  both(gpt_oss_window, {64, 1, 1088});
  both(lite, {32, 1, 32768});
  both(deepseek, {32, 1, 8192});
  both(qwen, {8, 1024, 1024});
  both(qwen, {1, 512, 8192});
  both(gpt_oss, {8, 1024, 1024});
  both(lite, {4, 2048, 2048});
}

}  // namespace

int main(int count, char** words) {
  const std::string which = count > 1 ? words[1] : "";
  if (count > 2) only = std::atoi(words[2]);
  if (which.empty() || which == "few") time_few();
  if (which.empty() || which == "many") time_many();
  if (which.empty() || which == "wide") time_wide();
  if (which.empty() || which == "fp8") time_codes();
  return 0;
}
