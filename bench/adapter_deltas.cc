// Deltas of rank-16 adapters alone, without the base: both seams of a 30B-A3B's expert layer and
// its q projection, for T rows that one adapter or four in turn are on. The best and the median
// time of each call, and operations a second from the median.
//   build/release/bench/bench_adapter_deltas [threads]

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string_view>
#include <vector>

#include "base/cat.h"
#include "base/function_ref.h"
#include "base/system/clock.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/elementary.h"
#include "layer_stack_model.h"
#include "lora/apply/apply.h"
#include "lora/apply/batch.h"
#include "lora/pages/pool.h"
#include "ops/context.h"
#include "tensor/arena.h"
#include "tensor/device/cpu_device.h"

namespace motley::bench {
namespace {

constexpr int rank = 16;
constexpr int adapter_count = 4;

class Deltas {
 public:
  explicit Deltas(int threads)
      : device_({.threads = threads}), scratch_(device_.allocate(lora::scratch_bytes).value()) {
    context_ = {.kernels = &kernels::cpu_table(),
                .stream = {&device_.pool()},
                .scratch = &scratch_,
                .exact = false};
    for (int i = 0; i < adapter_count; ++i) {
      const lora::Adapter adapter = make_adapter(shape_, rank, static_cast<std::uint64_t>(i) + 1);
      if (pool_ == nullptr) {
        lora::Pool::Options options{.dtype = DType::bf16};
        options.bytes = lora::Pool::pages_of(adapter, options) * adapter_count * options.page_bytes;
        pool_ = lora::Pool::create(device_, options).value();
      }
      const lora::Handle handle = pool_->load(cat("adapter-", i), adapter).value();
      mixes_.push_back(lora::Mix::make(std::vector<lora::Mix::Part>{{handle, 1.0F}}).value());
    }
  }

  int threads() { return device_.pool().size(); }

  void measure(std::int64_t rows, int adapters) {
    std::vector<lora::Mix> mixes;
    for (std::int64_t row = 0; row < rows; ++row)
      mixes.push_back(mixes_[static_cast<std::size_t>(row % adapters)]);
    lora::Batch batch;
    batch.build(mixes);
    const std::vector<std::int32_t> ids = random_ids(rows);
    plan::Plan plan(rows, static_cast<int>(shape_.top_k), static_cast<int>(shape_.experts));
    plan.build(ids, batch.labels());

    const std::int64_t pairs = rows * shape_.top_k;
    Matrix x(device_, DType::bf16, rows, shape_.hidden);
    Matrix h(device_, DType::bf16, pairs, shape_.intermediate);
    Matrix gate(device_, DType::f32, pairs, shape_.intermediate);
    Matrix up(device_, DType::f32, pairs, shape_.intermediate);
    Matrix out(device_, DType::f32, pairs, shape_.hidden);
    Matrix q(device_, DType::f32, rows, shape_.q_width());
    const lora::ExpertDeltas deltas{.batch = &batch, .layer = 0};
    const std::int64_t expert_numbers = rank * (shape_.hidden + shape_.intermediate);
    std::printf("T %4d, %d adapters", static_cast<int>(rows), adapters);
    report("gate, up", 2 * pairs * expert_numbers, rows,
           [&] { lora::add_gate_up(deltas, plan, x.view, gate.view, up.view, context_); });
    report("down", pairs * expert_numbers, rows,
           [&] { lora::add_down(deltas, plan, h.view, out.view, context_); });
    report("q", rows * rank * (shape_.hidden + shape_.q_width()), rows, [&] {
      lora::dense_delta(batch, {0, lora::Projection::q}, batch.labels(), x.view, q.view, context_);
    });
    std::printf("\n");
  }

 private:
  struct Matrix {
    Matrix(tensor::Device& device, DType dtype, std::int64_t rows, std::int64_t columns)
        : memory(
              device.allocate(static_cast<std::size_t>(rows * columns * bits(dtype) / 8)).value()),
          view(memory.data(), dtype, {rows, columns}) {
      // Bytes 0x3C: small numbers in either type.
      std::fill_n(memory.data(), memory.size(), std::byte{0x3C});
    }
    tensor::Buffer memory;
    tensor::Tensor view;
  };

  std::vector<std::int32_t> random_ids(std::int64_t rows) {
    std::vector<std::int32_t> ids;
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto first = static_cast<std::ptrdiff_t>(ids.size());
      while (static_cast<std::int64_t>(ids.size()) < (row + 1) * shape_.top_k) {
        random_ = random_ * 6364136223846793005U + 1442695040888963407U;
        const auto id =
            static_cast<std::int32_t>((random_ >> 33) % static_cast<std::uint64_t>(shape_.experts));
        if (std::find(ids.begin() + first, ids.end(), id) == ids.end()) ids.push_back(id);
      }
    }
    return ids;
  }

  static void report(std::string_view name, std::int64_t products, std::int64_t rows,
                     FunctionRef<void()> body) {
    std::vector<double> times;
    for (int run = 0; run < (rows > 100 ? 21 : 101); ++run) {
      const auto start = std::chrono::steady_clock::now();
      body();
      times.push_back(seconds(std::chrono::steady_clock::now() - start));
    }
    std::ranges::sort(times);
    const double median = times[times.size() / 2];
    std::printf("   %.*s %8.1f us (best %8.1f) %6.1f GFLOP/s", static_cast<int>(name.size()),
                name.data(), median * 1e6, times.front() * 1e6,
                2e-9 * static_cast<double>(products) / median);
  }

  Shape shape_{.layers = 1};
  tensor::CpuDevice device_;
  tensor::Arena scratch_;
  ops::Context context_;
  std::unique_ptr<lora::Pool> pool_;
  std::vector<lora::Mix> mixes_;
  std::uint64_t random_ = 88172645463325252U;
};

int run(int argc, char** argv) {
  int threads = 0;
  if (argc > 1) {
    const std::string_view text = argv[1];
    std::from_chars(text.data(), text.data() + text.size(), threads);
  }
  Deltas deltas(threads);
  const auto set = kernels::cpu::name(kernels::cpu::available_instruction_sets().back());
  std::printf("%d threads, %.*s, rank %d, pages in bf16\n\n", deltas.threads(),
              static_cast<int>(set.size()), set.data(), rank);
  for (const int adapters : {1, adapter_count}) {
    for (const std::int64_t rows : {1, 8, 32, 128, 512}) deltas.measure(rows, adapters);
  }
  return 0;
}

}  // namespace
}  // namespace motley::bench

int main(int argc, char** argv) { return motley::bench::run(argc, argv); }
