#include "cli/bench/steps/ceilings.h"

#include <algorithm>
#include <vector>

#include "base/function_ref.h"
#include "base/number_types.h"
#include "base/system/clock.h"
#include "kernels/read_memory.h"
#include "ops/linear.h"
#include "tensor/arena.h"

namespace motley::cli {
namespace {

struct Sizes {
  std::int64_t read_bytes;
  std::int64_t product;        // rows, inputs and outputs
  std::int64_t exact_product;  // the same, in float32
  int runs;                    // launched one after the other
};
constexpr Sizes gpu{
    .read_bytes = std::int64_t{4} << 30, .product = 8192, .exact_product = 2048, .runs = 10};
constexpr Sizes cpu{
    .read_bytes = std::int64_t{256} << 20, .product = 512, .exact_product = 512, .runs = 1};

constexpr int rounds = 3;

// Seconds of one call, the best of several rounds.
Result<double> best_seconds(tensor::Stream& stream, int runs, FunctionRef<void()> call) {
  const SteadyClock clock;
  double best = 0;
  for (int round = 0; round <= rounds; ++round) {
    MOTLEY_TRY_VOID(stream.synchronize());
    const TimePoint start = clock.now();
    for (int run = 0; run < runs; ++run) call();
    MOTLEY_TRY_VOID(stream.synchronize());
    const double time = seconds(clock.now() - start) / runs;
    // The first round warms up.
    if (round == 1 || (round > 1 && time < best)) best = time;
  }
  return best;
}

// Fills memory with small random numbers.
Result<void> fill(tensor::Stream& stream, std::byte* to, std::int64_t bytes) {
  std::vector<bf16> numbers(std::size_t{1} << 22);
  std::uint32_t state = 1;
  for (bf16& number : numbers) {
    state = state * 1664525U + 1013904223U;
    number = bf16::from(static_cast<float>(state >> 8) / 16777216.0F - 0.5F);
  }
  const auto block = static_cast<std::int64_t>(numbers.size() * sizeof(bf16));
  for (std::int64_t at = 0; at < bytes; at += block)
    MOTLEY_TRY_VOID(stream.copy(to + at, numbers.data(),
                                static_cast<std::size_t>(std::min(block, bytes - at))));
  return {};
}

Result<double> read_speed(tensor::Device& device, tensor::Stream& stream, const Sizes& sizes,
                          const kernels::ElementaryTable& kernels) {
  const std::int64_t units = sizes.read_bytes / kernels::ReadMemory::unit;
  MOTLEY_TRY(const tensor::Buffer memory,
             device.allocate(static_cast<std::size_t>(sizes.read_bytes)));
  MOTLEY_TRY(const tensor::Buffer sums,
             device.allocate(static_cast<std::size_t>(units) * sizeof(std::uint64_t)));
  MOTLEY_TRY_VOID(fill(stream, memory.data(), sizes.read_bytes));
  const kernels::ReadMemory params{
      .data = memory.data(), .units = units, .sums = reinterpret_cast<std::uint64_t*>(sums.data())};
  const bool on_gpu = device.id().kind == tensor::DeviceKind::cuda;
  MOTLEY_TRY(const double time, best_seconds(stream, sizes.runs, [&] {
               (on_gpu ? kernels::cuda::read_memory : kernels::cpu::read_memory)(
                   params, kernels.on(stream.handle()));
             }));
  return static_cast<double>(sizes.read_bytes) / time;
}

Result<double> product_speed(tensor::Device& device, tensor::Stream& stream, const Sizes& sizes,
                             const kernels::ElementaryTable& kernels, bool exact) {
  const std::int64_t n = exact ? sizes.exact_product : sizes.product;
  const DType type = exact ? DType::f32 : DType::bf16;
  const tensor::Shape shape{n, n};
  const auto numbers = static_cast<std::size_t>(n * n);
  MOTLEY_TRY(const tensor::Buffer x,
             device.allocate(numbers * (exact ? sizeof(float) : sizeof(bf16))));
  MOTLEY_TRY(const tensor::Buffer w, device.allocate(numbers * sizeof(bf16)));
  MOTLEY_TRY(const tensor::Buffer y, device.allocate(numbers * sizeof(float)));
  MOTLEY_TRY(tensor::Buffer scratch, device.allocate(std::size_t{1} << 20));
  MOTLEY_TRY_VOID(fill(stream, x.data(), static_cast<std::int64_t>(x.size())));
  MOTLEY_TRY_VOID(fill(stream, w.data(), static_cast<std::int64_t>(w.size())));
  const quant::Weight weight(
      {.format = quant::plain_format(DType::bf16), .size = {n, n}, .data = w.data()});
  tensor::Arena arena(std::move(scratch));
  const ops::Context context{.kernels = &kernels,
                             .stream = kernels.on(stream.handle()),
                             .scratch = &arena,
                             .exact = exact};
  MOTLEY_TRY(const double time, best_seconds(stream, sizes.runs, [&] {
               ops::linear(context, x.view(type, shape), weight, y.view(DType::f32, shape));
             }));
  return 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / time;
}

}  // namespace

Result<Ceilings> measure_ceilings(tensor::Device& device, const kernels::ElementaryTable& kernels,
                                  bool exact) {
  const Sizes& sizes = device.id().kind == tensor::DeviceKind::cuda ? gpu : cpu;
  MOTLEY_TRY(const std::unique_ptr<tensor::Stream> stream, device.create_stream());
  Ceilings ceilings;
  MOTLEY_TRY(ceilings.bytes_a_second, read_speed(device, *stream, sizes, kernels));
  MOTLEY_TRY(ceilings.operations_a_second, product_speed(device, *stream, sizes, kernels, exact));
  return ceilings;
}

}  // namespace motley::cli
