#pragma once

#include <cmath>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/function_ref.h"
#include "base/system/thread_pool.h"
#include "dist/thread_ranks.h"
#include "kernels/elementary.h"
#include "lora/apply/apply.h"
#include "lora/apply/batch.h"
#include "lora/pages/placement.h"
#include "lora/pages/pool.h"
#include "lora/test_base.h"
#include "ops/context.h"
#include "tensor/arena.h"
#include "tensor/device/cpu_device.h"

// Fixtures for tests of the application of deltas: adapters, a pool, batches and a context.
namespace motley::lora::test {

// Numbers that are exact in bf16.
inline std::vector<float> bf16_numbers(std::mt19937& random, std::int64_t count) {
  std::vector<float> numbers = random_numbers(random, count);
  for (float& number : numbers) number = bf16::from(number).to_float();
  return numbers;
}

// Numbers that are exact in FP8 with a power-of-two scale, and so in bf16: pages of every type
// store them exactly.
inline std::vector<float> page_numbers(std::mt19937& random, std::int64_t count) {
  std::vector<float> numbers = random_numbers(random, count);
  for (float& number : numbers) number = f8_e4m3::from(number).to_float();
  return numbers;
}

class AdapterMaker {
 public:
  explicit AdapterMaker(std::mt19937& random) : random_(random) {}

  int add(std::int64_t rows, std::int64_t columns, bool zero = false) {
    auto values = page_numbers(random_, rows * columns);
    if (zero) std::ranges::fill(values, 0.0F);
    adapter.matrices.push_back({rows, columns, std::move(values)});
    return static_cast<int>(adapter.matrices.size()) - 1;
  }
  SiteDelta& site(Site site, std::int64_t in, std::int64_t out, int experts = 1) {
    adapter.sites.push_back(
        {site, in, out, std::vector<Factors>(static_cast<std::size_t>(experts))});
    return adapter.sites.back();
  }
  Factors factors(int a, int b, int rank, float scale) {
    adapter.largest_rank = std::max(adapter.largest_rank, rank);
    return {a, b, rank, scale};
  }
  Adapter done() {
    std::ranges::sort(adapter.sites, {}, &SiteDelta::site);
    adapter.version = hash_content(adapter);
    return adapter;
  }

  Adapter adapter;

 private:
  std::mt19937& random_;
};

struct World {
  explicit World(DType dtype, int threads = 3)
      : device({.threads = threads}),
        pool(Pool::create(device, {std::uint64_t{32} << 20, 4096, dtype}).value()),
        scratch(device.allocate(scratch_bytes).value()) {
    context.kernels = &kernels::cpu_table();
    context.stream.native = &device.pool();
    context.scratch = &scratch;
  }

  Handle load(const Adapter& adapter) {
    return pool->load(cat("adapter-", count++), adapter).value();
  }
  Mix mix(std::initializer_list<std::pair<Handle, float>> parts) {
    std::vector<Mix::Part> list;
    for (const auto& [handle, scale] : parts) list.push_back({handle, scale});
    return Mix::make(list).value();
  }

  tensor::CpuDevice device;
  std::unique_ptr<Pool> pool;
  tensor::Arena scratch;
  ops::Context context;
  int count = 0;
};

// Calls body(rank, context) on a thread for each of several ranks that share all products with A.
inline void on_sharing_ranks(int ranks,
                             FunctionRef<void(std::size_t rank, const ops::Context&)> body) {
  dist::ThreadRanks group({.ranks = ranks});
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      tensor::CpuDevice device({.threads = 1});
      tensor::Arena scratch(device.allocate(scratch_bytes).value());
      body(static_cast<std::size_t>(rank),
           {.kernels = &kernels::cpu_table(),
            .scratch = &scratch,
            .ranks = &group.rank(rank),
            .shared_shrinks = {.experts = true, .dense = true, .from_rows = 0}});
    });
  for (std::thread& thread : threads) thread.join();
  const auto status = group.rank(0).status();
  EXPECT_TRUE(status.ok()) << status.error().message();
}

// A matrix of float32 or bf16 that owns its numbers.
struct Numbers {
  Numbers(DType type, std::int64_t rows, std::int64_t columns, std::vector<float> numbers)
      : dtype(type), shape{rows, columns}, f32(std::move(numbers)) {
    if (dtype == DType::bf16) {
      for (const float number : f32) half.push_back(bf16::from(number));
    }
  }

  tensor::Tensor view() {
    auto* const data = dtype == DType::f32 ? reinterpret_cast<std::byte*>(f32.data())
                                           : reinterpret_cast<std::byte*>(half.data());
    return tensor::Tensor(data, dtype, shape);
  }
  float at(std::int64_t row, std::int64_t column) const {
    const auto i = static_cast<std::size_t>(row * shape[1] + column);
    return dtype == DType::f32 ? f32[i] : half[i].to_float();
  }

  DType dtype;
  tensor::Shape shape;
  std::vector<float> f32;
  std::vector<bf16> half;
};

// scale * B A x in float64, for one pair of factors.
inline std::vector<double> delta_of(const Adapter& adapter, const Factors& factors,
                                    std::span<const double> x) {
  std::vector<double> y;
  if (!factors.present()) return y;
  const Matrix& a = adapter.matrices[static_cast<std::size_t>(factors.a)];
  const Matrix& b = adapter.matrices[static_cast<std::size_t>(factors.b)];
  y.resize(static_cast<std::size_t>(b.rows));
  for (std::int64_t r = 0; r < factors.rank; ++r) {
    double t = 0;
    for (std::int64_t k = 0; k < a.columns; ++k)
      t += double{a.at(r, k)} * x[static_cast<std::size_t>(k)];
    for (std::int64_t o = 0; o < b.rows; ++o)
      y[static_cast<std::size_t>(o)] += double{factors.scale} * t * double{b.at(o, r)};
  }
  return y;
}

inline std::vector<double> row_of_numbers(const Numbers& numbers, std::int64_t row) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < numbers.shape[1]; ++i) values.push_back(double{numbers.at(row, i)});
  return values;
}

// A bound on the error of float32 sums of numbers up to 1: each of `terms` products is rounded, and
// the reference's magnitude bounds their size.
inline double tolerance(double reference, std::int64_t terms) {
  return 4e-7 * (std::abs(reference) + static_cast<double>(terms));
}

}  // namespace motley::lora::test
