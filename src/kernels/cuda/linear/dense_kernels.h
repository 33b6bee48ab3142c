#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "kernels/cuda/linear/linear.h"
#include "kernels/kernel.h"

// The dense kernels as values: what each computes, and what it refuses.
namespace motley::kernels::cuda {

class MatmulLibrary;

// Products x W^T of the same rows of one x, or one product x W. It holds no adapters: base rows
// have the same kernel, and the same bits, with adapter rows beside them and without.
struct DenseProblem {
  std::span<const Linear> products;
  MatmulLibrary* library = nullptr;
  bool transposed = false;                  // x W
  const LinearPerHead* per_head = nullptr;  // of the one product, if it is one of linear_per_head
};

// What must hold for a product of a problem, and why a kernel refuses it otherwise. Selection asks
// `holds` only: words are put together for errors and tests, never in a step.
struct DenseCondition {
  bool (*holds)(const DenseProblem&, const Linear&);
  std::string (*refusal)(const DenseProblem&, const Linear&);
};

struct DenseKernel {
  KernelInfo info;
  std::size_t max_products = 1;  // of a launch
  // A row's bits don't depend on the number of rows.
  bool batch_invariant = false;
  // It writes LinearPerHead::rounded itself.
  bool rounds = false;
  // Of every product of a launch, in the order in which they are asked.
  std::span<const DenseCondition> conditions;
  // Sets attributes on the current device, at load; null: it has none.
  Result<void> (*prepare)() = nullptr;
  // Only launches. `ahead` may be brought nearer.
  void (*run)(const DenseProblem&, const Ahead& ahead, StreamHandle) = nullptr;

  Support supports(const DenseProblem& problem) const;
  // Whether it can compute a product in one launch with the problem's first; `supports` says why
  // not.
  bool can(const DenseProblem& problem, const Linear& product) const;
};

extern const DenseKernel gemv_bulk_kernel;
extern const DenseKernel gemv_streamed_kernel;
extern const DenseKernel gemv_streamed_int4_kernel;
extern const DenseKernel per_head_kernel;
extern const DenseKernel cublaslt_kernel;
extern const DenseKernel cublaslt_batch_invariant_kernel;
extern const DenseKernel exact_kernel;

std::span<const DenseKernel* const> all_dense_kernels();

// Of the current device, at load.
Result<void> prepare_dense();

}  // namespace motley::kernels::cuda
