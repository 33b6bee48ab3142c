#include "kernels/cuda/linear/dense_select.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/cat.h"
#include "kernels/cuda/thresholds.h"

namespace motley::kernels::cuda {
namespace {

// Whether a tuned row was measured with the problem's products, or with more before them. Products
// of another format are launched apart in any case.
bool fits(const DenseProblem& problem, const DenseShape& shape) {
  if (problem.transposed || problem.per_head != nullptr) return false;
  std::size_t count = 0;
  for (const Linear& l : problem.products) {
    if (l.w.kind != shape.kind || l.w.block_columns != shape.group) break;
    if (l.heads != 1 || l.w.in != shape.inputs) return false;
    ++count;
  }
  if (count == 0 || count > shape.outputs.size()) return false;
  return std::ranges::equal(problem.products.first(count), std::span(shape.outputs).last(count), {},
                            &Linear::out);
}

// The number of leading products that this row launches together; 0 for none.
std::size_t count_products(const DenseProblem& problem, const DenseThreshold& row) {
  const std::span<const Linear> products = problem.products;
  const Linear& first = products[0];
  if (first.rows > row.max_rows) return 0;
  if (row.code_bits != 0 && code_bits(first.w.kind) != row.code_bits) return 0;
  const bool alone = first.batch_invariant;
  if (alone && (row.max_rows != DenseThreshold::any || row.shape != nullptr)) return 0;
  if (row.shape != nullptr && !fits(problem, *row.shape)) return 0;
  const std::size_t most =
      alone ? 1 : std::min({products.size(), row.max_products, row.kernel->max_products});
  std::size_t count = 0;
  std::int64_t numbers = 0;
  while (count < most && numbers_of(products[count]) <= row.max_numbers &&
         row.kernel->can(problem, products[count]))
    numbers += numbers_of(products[count++]);
  return count >= row.min_products && numbers <= row.max_numbers_together ? count : 0;
}

}  // namespace

std::int64_t numbers_of(const Linear& product) {
  return product.heads * product.out * product.w.in;
}

DenseChoice select_dense(const DenseProblem& problem, std::span<const DenseThreshold> table) {
  for (const DenseThreshold& row : table) {
    const std::size_t count = count_products(problem, row);
    if (count > 0) return {.kernel = row.kernel, .products = count};
  }
  return {};
}

DenseChoice select_dense(const DenseProblem& problem) {
  return select_dense(problem, dense_thresholds);
}

Error no_dense_kernel(const DenseProblem& problem, std::span<const DenseThreshold> table) {
  const Linear& first = problem.products[0];
  std::vector<const DenseKernel*> asked;
  std::vector<std::string> reasons;
  DenseProblem alone = problem;
  alone.products = problem.products.first(1);
  for (const DenseThreshold& row : table) {
    if (std::ranges::find(asked, row.kernel) != asked.end()) continue;
    asked.push_back(row.kernel);
    const Support support = row.kernel->supports(alone);
    reasons.push_back(cat(row.kernel->info.name, ": ",
                          support ? "it can, and no threshold lets it" : support.reason()));
  }
  return {ErrorCode::unsupported,
          cat("no kernel multiplies ", first.rows, " rows with weights [", first.out, ", ",
              first.w.in, "]: ", motley::join(reasons, "; ")),
          "cuda"};
}

}  // namespace motley::kernels::cuda
