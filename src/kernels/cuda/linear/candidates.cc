#include "kernels/tuning/candidates.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include <cuda_runtime_api.h>

#include "base/cat.h"
#include "base/check.h"
#include "kernels/cuda/linear/joined.h"
#include "kernels/cuda/linear/library.h"
#include "kernels/cuda/primitives/device.h"
#include "kernels/cuda/tuned_thresholds.h"

namespace motley::kernels::cuda {
namespace {

const DenseKernel& kernel_of(std::string_view name) {
  const auto all = all_dense_kernels();
  const auto found =
      std::ranges::find(all, name, [](const DenseKernel* kernel) { return kernel->info.name; });
  MOTLEY_CHECK(found != all.end(), "a kernel's name");
  return **found;
}

// The number of the problem's first products that the kernel takes in one launch.
std::size_t count_together(const DenseKernel& kernel, const DenseProblem& problem) {
  const std::size_t most = std::min(problem.products.size(), kernel.max_products);
  std::size_t count = 0;
  while (count < most && kernel.can(problem, problem.products[count])) ++count;
  return count;
}

// For selection without a GPU.
class AnyLibrary final : public MatmulLibrary {
 public:
  void* panel() override { return nullptr; }
  bool supports(const Linear&, bool) override { return true; }
  void multiply(const Linear&, bool, StreamHandle) override {}
};

// Addresses that every kernel takes.
alignas(256) constexpr std::byte aligned[256] = {};

Linear product_of(const DenseQuestion& question, WeightView weight, std::int64_t rows) {
  weight.data = aligned;
  return {.rows = rows,
          .x = aligned,
          .x_type = question.exact ? DType::f32 : DType::bf16,
          .x_stride = weight.in,
          .w = weight,
          .w_rows_per_head = weight.out,
          .out = weight.out,
          .y_stride = weight.out,
          .exact = question.exact,
          .batch_invariant = question.batch_invariant};
}

ArrangeInputs inputs_of(const Linear& product) {
  return {.rows = product.rows,
          .width = product.w.in,
          .x = product.x,
          .x_type = product.x_type,
          .x_stride = product.x_stride,
          .rounding = product.w.inputs,
          .out = const_cast<void*>(product.x),
          .out_stride = product.x_stride};
}

bool rounds(const ArrangeInputs& inputs) {
  return inputs.rounding.scales != InputRounding::Scales::none;
}

// Products whose inputs, rounded or not, stand in x.
DenseProblem problem_of(std::span<const Linear> products, const ArrangeInputs& inputs,
                        StreamHandle stream) {
  return {.products = products,
          .library = &device_of(stream).matmuls(),
          .inputs = rounds(inputs) ? &inputs : nullptr,
          .coded = true};
}

// The same kind of weight at sizes that suit every kernel for it.
WeightView convenient(WeightView weight) {
  weight.out = weight.in = 2048;
  weight.block_rows = 1;
  if (weight.block_columns > 0 && weight.kind != WeightKind::f4_e2m1) weight.block_columns = 128;
  return weight;
}

bool comes_before(const DenseThreshold& row, const Linear& product) {
  return product.rows <= row.max_rows && numbers_of(product) <= row.max_numbers &&
         (row.code_bits == 0 || code_bits(product.w.kind) == row.code_bits) &&
         row.min_products == 1 && row.shape == nullptr &&
         !(product.batch_invariant && row.max_rows != DenseThreshold::any);
}

void add_passed_over(const DenseProblem& problem, const DenseKernel& chosen,
                     std::span<const DenseThreshold> table, DenseSelection& selection) {
  DenseProblem alone = problem;
  alone.products = problem.products.first(1);
  Linear other = alone.products[0];
  other.w = convenient(other.w);
  other.out = other.w_rows_per_head = other.w.out;
  other.x_stride = other.w.in;
  DenseProblem likely = problem;
  likely.products = {&other, 1};
  for (const DenseThreshold& row : table) {
    if (row.kernel == &chosen) return;
    if (!comes_before(row, alone.products[0]) || !row.kernel->supports(likely)) continue;
    const Support support = row.kernel->supports(alone);
    if (support) continue;
    DenseSelection::PassedOver passed{row.kernel->info.name, support.reason()};
    if (std::ranges::find(selection.passed_over, passed) == selection.passed_over.end())
      selection.passed_over.push_back(std::move(passed));
  }
}

}  // namespace

Result<Card> card_of(int device) {
  cudaDeviceProp properties{};
  int driver = 0;
  cudaError_t status = cudaGetDeviceProperties(&properties, device);
  if (status == cudaSuccess) status = cudaDriverGetVersion(&driver);
  if (status != cudaSuccess)
    return Error(ErrorCode::internal,
                 cat("the GPU does not tell its name: ", cudaGetErrorString(status)), "cuda",
                 "restart; if it happens again, check the GPU with nvidia-smi");
  return Card{.name = properties.name,
              .driver = cat("CUDA ", driver / 1000, ".", driver % 1000 / 10)};
}

Result<void> check_tuning(const Tuning& tuning) {
  auto made = DeviceThresholds::make(&tuning);
  if (!made.ok()) return std::move(made).error();
  return {};
}

std::string tiling_name(int number) {
  return name_of(all_grouped_tiles[static_cast<std::size_t>(number)]);
}

std::span<const std::string_view> dense_candidates() {
  static constexpr std::array<std::string_view, 7> names{
      "gemv_bulk", "gemv_bulk_codes", "gemv_streamed", "gemv_streamed_codes",
      "cublaslt",  "coded",           "decoded"};
  return names;
}

std::vector<Linear> join_products(std::span<const Linear> products) {
  MOTLEY_CHECK(products.size() <= Joined::max_joined, "as many products as are joined at a time");
  const Joined joined(products);
  return {joined.span().begin(), joined.span().end()};
}

bool can_run_dense(std::string_view kernel, std::span<const Linear> products, StreamHandle stream) {
  const ArrangeInputs inputs = inputs_of(products[0]);
  DenseProblem problem = problem_of(products, inputs, stream);
  while (!problem.products.empty()) {
    const std::size_t count = count_together(kernel_of(kernel), problem);
    if (count == 0) return false;
    problem.products = problem.products.subspan(count);
  }
  return true;
}

void run_dense(std::string_view kernel, std::span<const Linear> products, StreamHandle stream) {
  const DenseKernel& own = kernel_of(kernel);
  const ArrangeInputs inputs = inputs_of(products[0]);
  DenseProblem left = problem_of(products, inputs, stream);
  while (!left.products.empty()) {
    DenseProblem first = left;
    const std::size_t count = count_together(own, left);
    MOTLEY_CHECK(count > 0, "products that the kernel supports");
    first.products = left.products.first(count);
    own.run(first, {}, stream);
    left.products = left.products.subspan(count);
  }
}

std::optional<DenseSelection> describe_dense(const DenseQuestion& question) {
  const auto thresholds = DeviceThresholds::make(question.tuning);
  MOTLEY_CHECK(thresholds.ok(), "a tuning whose kernels exist");
  const std::span<const DenseThreshold> table = (*thresholds)->dense();
  AnyLibrary library;
  DenseSelection selection;
  for (const std::int64_t rows : {DenseSelection::few_rows, DenseSelection::many_rows}) {
    std::vector<Linear> products;
    for (const WeightView& weight : question.products)
      products.push_back(product_of(question, weight, rows));
    const ArrangeInputs inputs = inputs_of(products[0]);
    const DenseProblem problem{
        .products = products, .library = &library, .inputs = rounds(inputs) ? &inputs : nullptr};
    const DenseChoice choice = select_dense(problem, table);
    MOTLEY_CHECK(choice.kernel != nullptr, no_dense_kernel(problem, table).message());
    (rows == DenseSelection::few_rows ? selection.few : selection.many) = choice.kernel->info.name;
    add_passed_over(problem, *choice.kernel, table, selection);
  }
  return selection;
}

}  // namespace motley::kernels::cuda
