// Times dense products on one GPU; README.md says what it prints.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "../graph_time.h"
#include "base/number_types.h"
#include "kernels/cuda/elementary/arrange_inputs.h"
#include "kernels/cuda/linear/dense_kernels.h"
#include "kernels/cuda/primitives/device.h"

namespace {

using motley::StreamHandle;
using motley::kernels::Linear;
using motley::kernels::WeightKind;
using motley::kernels::cuda::DenseKernel;

constexpr double bytes_per_us = 4.3e6;
constexpr double flop_per_us = 745e6;
constexpr double cold_bytes = 240e6;  // of all weight sets: four times L2

__global__ void fill(motley::bf16* out, std::int64_t count, std::uint32_t seed) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    std::uint32_t x = static_cast<std::uint32_t>(i) * 0x9E3779B1U ^ seed;
    x = (x ^ x >> 16) * 0x7FEB352DU;
    x = (x ^ x >> 15) * 0x846CA68BU;
    out[i] = motley::bf16::from(static_cast<float>(static_cast<int>(x >> 24) - 128) / 4096.0F);
  }
}

motley::bf16* random_numbers(std::int64_t count, std::uint32_t seed) {
  motley::bf16* data = nullptr;
  CHECK_CUDA(cudaMalloc(&data, static_cast<std::size_t>(count) * sizeof *data));
  fill<<<1056, 256>>>(data, count, seed);
  CHECK_CUDA(cudaDeviceSynchronize());
  return data;
}

// Median us of a launch in a captured graph of `count`, behind one outside of it: a library's first
// call may do what a graph can't hold.
double measure(int count, int replays, const std::function<void(int, StreamHandle)>& launch) {
  launch(0, motley::bench::default_stream());
  CHECK_CUDA(cudaDeviceSynchronize());
  return motley::bench::graph_time(count, replays, launch);
}

struct Format {
  const char* prefix;
  WeightKind kind;
  double bits;              // of a number, scales included
  std::int64_t block_rows;  // that share a scale
  std::int64_t block_columns;
  motley::kernels::InputRounding inputs;
};
constexpr std::int64_t whole_row = std::int64_t{1} << 30;
using Scales = motley::kernels::InputRounding::Scales;
constexpr Format formats[] = {
    {"bf16", WeightKind::bf16, 16, 1, 0, {}},
    {"int4", WeightKind::int4, 4.25, 1, 128, {}},
    {"fp8",
     WeightKind::f8_e4m3,
     8,
     128,
     128,
     {.scales = Scales::row_block, .type = motley::DType::f8_e4m3, .columns = 128}},
    {"w8a8", WeightKind::i8, 8, 1, whole_row, {.scales = Scales::row}}};

struct Case {
  const Format* format = formats;
  std::int64_t out = 0;
  std::int64_t in = 0;
  std::vector<std::int64_t> rows;
};

// Times of a product's kernels, us: of all but the exact one, which is no alternative.
struct Times {
  std::string text;
  double best = 0;
};
Times measure_kernels(int count, int replays, const motley::kernels::ArrangeInputs& inputs,
                      const std::function<Linear(int)>& product) {
  const bool rounds = inputs.rounding.scales != Scales::none;
  Times times;
  for (const DenseKernel* kernel : motley::kernels::cuda::all_dense_kernels()) {
    if (kernel == &motley::kernels::cuda::exact_kernel) continue;
    const bool batch_invariant = kernel == &motley::kernels::cuda::cublaslt_batch_invariant_kernel;
    const auto launch = [&](int i, StreamHandle s) {
      Linear one = product(i);
      one.batch_invariant = batch_invariant;
      const motley::kernels::cuda::DenseProblem problem{
          .products = {&one, 1},
          .library = &motley::kernels::cuda::device_of(s).matmuls(),
          .inputs = rounds ? &inputs : nullptr};
      if (!kernel->supports(problem)) return false;
      if (rounds && !kernel->codes_inputs) motley::kernels::cuda::arrange_inputs(inputs, s);
      kernel->run(problem, {}, s);
      return true;
    };
    if (!launch(0, motley::bench::default_stream())) continue;
    const double us = measure(count, replays, launch);
    const double again = measure(count, replays, launch);
    char text[96];
    std::snprintf(text, sizeof text, " %.*s %.2f us (again %.2f),",
                  static_cast<int>(kernel->info.name.size()), kernel->info.name.data(), us, again);
    times.text += text;
    if (!batch_invariant && (times.best == 0 || us < times.best)) times.best = us;
  }
  return times;
}

void run(const Case& c) {
  const Format& format = *c.format;
  const double weight_bytes = format.bits / 8 * static_cast<double>(c.out * c.in);
  const int sets = std::max(2, static_cast<int>(cold_bytes / weight_bytes) + 1);
  const std::int64_t max_rows = *std::max_element(c.rows.begin(), c.rows.end());
  // A gap that is no multiple of L2's sets between one weight and the next, in bf16 numbers.
  const std::int64_t set_numbers =
      c.out * c.in * motley::kernels::code_bits(format.kind) / 16 + 8 * 1024;
  motley::bf16* const weights = random_numbers(sets * set_numbers, 1);
  // Two bf16 numbers are a float32 of the later one's size.
  const bool scaled = format.block_columns > 0;
  const std::int64_t set_scales =
      scaled ? (c.out + format.block_rows - 1) / format.block_rows *
                   ((c.in + format.block_columns - 1) / format.block_columns)
             : 0;
  motley::bf16* const scales = random_numbers(2 * sets * set_scales, 3);
  motley::bf16* const x = random_numbers(max_rows * c.in, 2);
  // Rounded x: its codes may stand there, so products read x itself where nothing is rounded.
  const bool rounds = format.inputs.scales != Scales::none;
  motley::bf16* const taken = rounds ? random_numbers(max_rows * c.in, 2) : x;
  float* y = nullptr;
  CHECK_CUDA(cudaMalloc(&y, static_cast<std::size_t>(max_rows * c.out) * sizeof *y));
  for (const std::int64_t rows : c.rows) {
    const auto product = [&](int i) {
      return Linear{
          .rows = rows,
          .x = taken,
          .x_type = motley::DType::bf16,
          .x_stride = c.in,
          .w = {.kind = format.kind,
                .data = weights + i % sets * set_numbers,
                .scales = scaled ? reinterpret_cast<const float*>(scales) + i % sets * set_scales
                                 : nullptr,
                .out = c.out,
                .in = c.in,
                .block_rows = format.block_rows,
                .block_columns = format.block_columns,
                .inputs = format.inputs},
          .w_rows_per_head = c.out,
          .out = c.out,
          .y = y,
          .y_stride = c.out,
          .exact = false};
    };
    const motley::kernels::ArrangeInputs inputs{.rows = rows,
                                                .width = c.in,
                                                .x = x,
                                                .x_type = motley::DType::bf16,
                                                .x_stride = c.in,
                                                .rounding = format.inputs,
                                                .out = taken,
                                                .out_stride = c.in};
    const Times times =
        measure_kernels(std::max(16, std::min(sets, 64)), rows > 1024 ? 5 : 15, inputs, product);
    const double bytes =
        weight_bytes + static_cast<double>(rows) *
                           (2.0 * static_cast<double>(c.in) + 4.0 * static_cast<double>(c.out));
    const double products = 2.0 * static_cast<double>(rows * c.out * c.in);
    const double floor = std::max(bytes / bytes_per_us, products / flop_per_us);
    std::printf("%s %7lld x %-6lld %5lld rows:%s floor %.2f, x %.2f\n", format.prefix,
                static_cast<long long>(c.out), static_cast<long long>(c.in),
                static_cast<long long>(rows), times.text.c_str(), floor, times.best / floor);
  }
  CHECK_CUDA(cudaFree(weights));
  CHECK_CUDA(cudaFree(scales));
  CHECK_CUDA(cudaFree(x));
  if (rounds) CHECK_CUDA(cudaFree(taken));
  CHECK_CUDA(cudaFree(y));
}

Case parse(const char* text) {
  Case c;
  const char* size = text;
  for (const Format& format : formats) {
    const std::size_t length = std::strlen(format.prefix);
    if (std::strncmp(text, format.prefix, length) != 0 || text[length] != ':') continue;
    c.format = &format;
    size = text + length + 1;
  }
  char* at = nullptr;
  c.out = std::strtoll(size, &at, 10);
  if (*at == 'x') c.in = std::strtoll(at + 1, &at, 10);
  while (*at == ':' || *at == ',') c.rows.push_back(std::strtoll(at + 1, &at, 10));
  if (c.out <= 0 || c.in <= 0 || c.in % 8 != 0 || c.rows.empty() || *at != '\0') {
    std::printf(
        "can't read %s: write [bf16|int4|fp8|w8a8:]OUTxIN:ROWS,ROWS with IN a multiple of 8\n",
        text);
    std::exit(2);
  }
  return c;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Case> cases;
  for (int i = 1; i < argc; ++i) cases.push_back(parse(argv[i]));
  const std::vector<std::int64_t> rows = {1, 8, 16, 32, 64, 96, 128, 256};
  if (cases.empty()) {
    cases = {{.out = 5120, .in = 2048, .rows = rows},
             {.out = 2048, .in = 4096, .rows = rows},
             {.out = 128, .in = 2048, .rows = {1, 8, 32, 64}},
             {.out = 151936, .in = 2048, .rows = {1, 8, 16, 32, 64, 128}},
             {.out = 5120, .in = 2048, .rows = {1024, 8192}}};
  }
  for (const Case& c : cases) run(c);
  motley::bench::check_launches();
}
