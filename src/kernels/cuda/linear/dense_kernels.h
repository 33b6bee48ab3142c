#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "kernels/cuda/linear/linear.h"
#include "kernels/kernel.h"

// The dense kernels as values: what each computes, and which problems it refuses.
namespace motley::kernels::cuda {

class MatmulLibrary;

// Products x W^T of the same rows of x, or one product x W. Adapters are no part of it: base rows
// get the same kernel, and the same bits, with and without adapter rows in the batch.
struct DenseProblem {
  std::span<const Linear> products;
  MatmulLibrary* library = nullptr;
  bool transposed = false;                  // x W
  const LinearPerHead* per_head = nullptr;  // set if the one product is one of linear_per_head
  // Set if x of the products is still to be written, by this: a kernel may write codes there.
  const ArrangeInputs* inputs = nullptr;
  bool coded = false;  // the codes are there
};

// A condition on a product of a problem, and the reason if it fails. Selection only calls `holds`;
// reasons are put into words for errors and tests, never in a step.
struct DenseCondition {
  bool (*holds)(const DenseProblem&, const Linear&);
  std::string (*refusal)(const DenseProblem&, const Linear&);
};

struct DenseKernel {
  KernelInfo info;
  std::size_t max_products = 1;  // of a launch
  // The number of rows does not change a row's bits.
  bool batch_invariant = false;
  // The kernel writes LinearPerHead::rounded itself.
  bool rounds = false;
  // It takes DenseProblem::inputs, and does not read x; others read x.
  bool codes_inputs = false;
  // Conditions on every product of a launch, checked in this order.
  std::span<const DenseCondition> conditions;
  // Sets the kernel's attributes on the current device, at load; null: it has none.
  Result<void> (*prepare)() = nullptr;
  // Only launches. May prefetch `ahead`.
  void (*run)(const DenseProblem&, const Ahead& ahead, StreamHandle) = nullptr;

  Support supports(const DenseProblem& problem) const;
  // Whether it can compute a product in one launch with the problem's first; `supports` gives the
  // reason if not.
  bool can(const DenseProblem& problem, const Linear& product) const;
};

extern const DenseKernel gemv_bulk_kernel;
extern const DenseKernel gemv_bulk_codes_kernel;
extern const DenseKernel gemv_streamed_kernel;
extern const DenseKernel gemv_streamed_codes_kernel;
extern const DenseKernel per_head_kernel;
extern const DenseKernel cublaslt_kernel;
extern const DenseKernel cublaslt_batch_invariant_kernel;
extern const DenseKernel coded_kernel;
extern const DenseKernel decoded_kernel;
extern const DenseKernel decoded_batch_invariant_kernel;
extern const DenseKernel exact_kernel;

std::span<const DenseKernel* const> all_dense_kernels();

// For the current device, at load.
Result<void> prepare_dense();

}  // namespace motley::kernels::cuda
