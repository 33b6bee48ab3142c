#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "kernels/cuda/linear/dense_kernels.h"
#include "kernels/tuning/tuning.h"

// Selects the kernel for dense products: a pure function of the problem and a table of thresholds.
namespace motley::kernels::cuda {

// The measured range in which a kernel is chosen.
struct DenseThreshold {
  static constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();

  const DenseKernel* kernel = nullptr;
  std::string_view record;                  // the measurement: a file in bench/results/
  int code_bits = 0;                        // of the weights; 0: any
  std::int64_t max_rows = any;              // of x
  std::int64_t max_numbers = any;           // of a product's weights
  std::int64_t max_numbers_together = any;  // of the weights of all products of the launch
  std::size_t min_products = 1;             // of the launch
  std::size_t max_products = 1;
  // Of a tuned row: these products, or the last of them. It bounds the rows in any case, because
  // others of the shape have other bounds.
  const DenseShape* shape = nullptr;
};

// A launch of the problem's first products; the kernel is null if none applies.
struct DenseChoice {
  const DenseKernel* kernel = nullptr;
  std::size_t products = 0;
};

// The number of elements of a product's weights.
std::int64_t numbers_of(const Linear& product);

// The first row of the table whose bounds hold and whose kernel supports the problem. A launch
// takes as many products as its kernel and the row's `max_numbers` allow; the row's other bounds
// apply to that run. Batch-invariant products are launched one by one, by rows of the table without
// a bound on rows.
DenseChoice select_dense(const DenseProblem& problem, std::span<const DenseThreshold> table);
// Selects from the built-in table (thresholds.h).
DenseChoice select_dense(const DenseProblem& problem);

// Lists every kernel of the table with its reason, for a problem that none supports.
Error no_dense_kernel(const DenseProblem& problem, std::span<const DenseThreshold> table);

}  // namespace motley::kernels::cuda
