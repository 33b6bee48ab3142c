#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/linear/dense_select.h"
#include "kernels/cuda/linear/library.h"
#include "kernels/cuda/thresholds.h"

// Which dense kernels are selected, and the reasons they give. Needs no GPU.
namespace motley::kernels::cuda {
namespace {

using testing::HasSubstr;

// A library that has an algorithm for everything, or for nothing.
class FakeLibrary final : public MatmulLibrary {
 public:
  explicit FakeLibrary(bool any) : any_(any) {}
  void* panel() override { return nullptr; }
  bool supports(const Linear&, bool) override { return ++asked, any_; }
  void multiply(const Linear&, bool, StreamHandle) override {}

  int asked = 0;

 private:
  bool any_;
};

alignas(256) constexpr std::byte memory[256] = {};
alignas(256) float results[1 << 14];
constexpr std::uint8_t zeros[1] = {};

struct Size {
  std::int64_t rows;
  std::int64_t out;
  std::int64_t in;
};

Linear bf16_product(const Size& size) {
  return {.rows = size.rows,
          .x = memory,
          .x_type = DType::bf16,
          .x_stride = size.in,
          .w = {.kind = WeightKind::bf16, .data = memory, .out = size.out, .in = size.in},
          .w_rows_per_head = size.out,
          .out = size.out,
          .y = results,
          .y_stride = size.out,
          .exact = false};
}
Linear int4_product(const Size& size, std::int64_t group = 128) {
  Linear product = bf16_product(size);
  product.w.kind = WeightKind::int4;
  product.w.block_columns = group;
  return product;
}
Linear fp8_product(const Size& size, std::int64_t group = 128) {
  Linear product = int4_product(size, group);
  product.w.kind = WeightKind::f8_e4m3;
  product.w.scales = memory;
  return product;
}
// In blocks, with inputs rounded by block.
Linear coded_product(const Size& size) {
  Linear product = fp8_product(size);
  product.w.block_rows = 128;
  product.w.inputs = {
      .scales = InputRounding::Scales::row_block, .type = DType::f8_e4m3, .columns = 128};
  return product;
}
ArrangeInputs inputs_of(const Linear& product) {
  return {.rows = product.rows,
          .width = product.w.in,
          .x = memory,
          .x_type = product.x_type,
          .x_stride = product.w.in,
          .rounding = product.w.inputs,
          .out = results,
          .out_stride = product.w.in};
}
Linear f32_product(const Size& size) {
  Linear product = bf16_product(size);
  product.x_type = DType::f32;
  product.w.kind = WeightKind::f32;
  return product;
}
Linear changed(Linear product, auto change) {
  change(product);
  return product;
}
Linear invariant(const Linear& product) {
  return changed(product, [](Linear& l) { l.batch_invariant = true; });
}
Linear exact(const Linear& product) {
  return changed(product, [](Linear& l) { l.exact = true; });
}

// With results one behind the other in the rows of y.
std::vector<Linear> side_by_side(std::vector<Linear> products) {
  std::int64_t width = 0;
  for (Linear& product : products) {
    product.y = results + width;
    width += product.out;
  }
  for (Linear& product : products) product.y_stride = width;
  return products;
}

struct Case {
  std::string name;
  std::vector<Linear> products;
  std::string chosen;
  std::size_t together = 1;
  bool library = true;  // has an algorithm
  bool transposed = false;
  bool rounds = false;  // the problem has the inputs that are to be rounded
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class DenseSelection : public testing::TestWithParam<Case> {};

TEST_P(DenseSelection, FollowsTheTable) {
  const Case& c = GetParam();
  FakeLibrary library(c.library);
  const ArrangeInputs inputs = inputs_of(c.products[0]);
  const DenseProblem problem{.products = c.products,
                             .library = &library,
                             .transposed = c.transposed,
                             .inputs = c.rounds ? &inputs : nullptr};
  const DenseChoice choice = select_dense(problem);
  ASSERT_NE(choice.kernel, nullptr);
  EXPECT_EQ(choice.kernel->info.name, c.chosen);
  EXPECT_EQ(choice.products, c.together);
  const bool library_chosen = c.chosen.starts_with("cublaslt") || c.chosen.starts_with("decoded");
  EXPECT_EQ(library.asked > 0, library_chosen || !c.library) << "a search for algorithms";
  DenseProblem launch = problem;
  launch.products = problem.products.first(choice.products);
  EXPECT_TRUE(choice.kernel->supports(launch));
}

constexpr Size qkv{0, 5120, 2048};
constexpr Size o{0, 2048, 4096};
constexpr Size head{0, 151936, 2048};
constexpr Size odd{0, 2048, 520};  // inputs divisible by 8 and not by 32
Size rows(std::int64_t rows, Size size) {
  size.rows = rows;
  return size;
}

const std::vector<Case> few_rows = {
    {"OneRow", {bf16_product(rows(1, qkv))}, "gemv_bulk"},
    {"NoRows", {bf16_product(rows(0, qkv))}, "gemv_bulk"},
    {"EightRowsOf32Mi", {bf16_product({8, 16384, 2048})}, "gemv_bulk"},
    {"EightRowsBehind32Mi", {bf16_product({8, 16385, 2048})}, "cublaslt"},
    {"NineRowsOf12Mi", {bf16_product({9, 6144, 2048})}, "gemv_bulk"},
    {"NineRowsBehind12Mi", {bf16_product({9, 6145, 2048})}, "cublaslt"},
    {"SixteenRows", {bf16_product(rows(16, o))}, "gemv_bulk"},
    {"SeventeenRows", {bf16_product(rows(17, o))}, "cublaslt"},
    {"OddInputs", {bf16_product(rows(8, odd))}, "gemv_streamed"},
    {"OddInputsOfNineRows", {bf16_product(rows(9, odd))}, "cublaslt"},
    {"OddInputsBehind8Mi", {bf16_product({8, 16400, 520})}, "cublaslt"},
    {"LargeHead", {bf16_product(rows(1, head))}, "cublaslt"},
    {"PrefillRows", {bf16_product(rows(8192, qkv))}, "cublaslt"},
};
const std::vector<Case> other_products = {
    {"NoAlgorithm", {bf16_product(rows(64, qkv))}, "gemv_streamed", 1, false},
    {"NoAlgorithmOfF32", {f32_product(rows(64, qkv))}, "exact", 1, false},
    {"F32", {f32_product(rows(1, qkv))}, "cublaslt"},
    {"Int4OfOneRow", {int4_product(rows(1, qkv))}, "gemv_streamed_codes"},
    {"Int4OfManyRows", {int4_product(rows(8192, head))}, "decoded"},
    {"Int4OfManyRowsWithoutAlgorithm",
     {int4_product(rows(8192, head))},
     "gemv_streamed_codes",
     1,
     false},
    {"Int4InOddGroups", {int4_product(rows(1, qkv), 48)}, "decoded"},
    {"Int4InOddGroupsWithoutAlgorithm", {int4_product(rows(1, qkv), 48)}, "exact", 1, false},
    {"InvariantInt4InOddGroups",
     {invariant(int4_product(rows(1, qkv), 48))},
     "decoded_batch_invariant"},
    {"Exact", {exact(bf16_product(rows(1, qkv)))}, "exact"},
    {"Fp8WithoutScales",
     {changed(bf16_product(rows(1, qkv)), [](Linear& l) { l.w.kind = WeightKind::f8_e4m3; })},
     "decoded"},
    {"Fp8", {fp8_product(rows(1, qkv))}, "gemv_bulk_codes"},
    {"Fp8OfEightRows", {fp8_product(rows(8, o))}, "gemv_bulk_codes"},
    {"Fp8OfSixteenRows", {fp8_product(rows(16, o))}, "gemv_bulk_codes"},
    {"Fp8Of17Rows", {fp8_product(rows(17, o))}, "gemv_streamed_codes"},
    {"Fp8Of33Rows", {fp8_product(rows(33, o))}, "decoded"},
    {"Fp8Of32MiAndMore", {fp8_product(rows(1, head))}, "gemv_streamed_codes"},
    {"Fp8InOddInputs", {fp8_product(rows(1, odd))}, "gemv_streamed_codes"},
    {"InvariantFp8", {invariant(fp8_product(rows(1, qkv)))}, "gemv_streamed_codes"},
    {"Fp8InManyGroups", {fp8_product({1, 4096, 14336}, 32)}, "gemv_streamed_codes"},
    {"WithZeroPoints",
     {changed(fp8_product(rows(1, qkv)), [](Linear& l) { l.w.zero_points = zeros; })},
     "gemv_streamed_codes"},
    {"FourHeads",
     {changed(bf16_product({8, 128, 512}), [](Linear& l) { l.heads = 4; })},
     "gemv_streamed"},
    {"WeightsAtAnyByte",
     {changed(bf16_product(rows(64, qkv)), [](Linear& l) { l.w.data = memory + 2; })},
     "cublaslt"},
    {"WeightsAtAnyByteWithoutAlgorithm",
     {changed(bf16_product(rows(64, qkv)), [](Linear& l) { l.w.data = memory + 2; })},
     "exact",
     1,
     false},
    {"Transposed", {bf16_product({1, 512, 128})}, "cublaslt", 1, true, true},
    {"TransposedWithoutAlgorithm", {bf16_product({1, 512, 128})}, "exact", 1, false, true},
    {"InvariantRow", {invariant(bf16_product(rows(1, qkv)))}, "cublaslt_batch_invariant"},
    {"InvariantRows", {invariant(bf16_product(rows(8192, qkv)))}, "cublaslt_batch_invariant"},
    {"InvariantHead", {invariant(bf16_product(rows(1, head)))}, "gemv_streamed", 1, false},
    {"InvariantInt4", {invariant(int4_product(rows(1, qkv)))}, "gemv_streamed_codes"},
};
const std::vector<Case> together = {
    {"ThreeOfOneRow",
     {bf16_product({1, 4096, 2048}), bf16_product({1, 512, 2048}), bf16_product({1, 512, 2048})},
     "gemv_bulk",
     3},
    {"FiveOfOneRow", std::vector<Linear>(5, bf16_product({1, 512, 2048})), "gemv_bulk", 4},
    {"UpToALargeOne",
     {bf16_product({16, 512, 2048}), bf16_product({16, 8192, 2048})},
     "gemv_bulk",
     1},
    {"UpToOtherInputs", {bf16_product({1, 512, 2048}), bf16_product({1, 512, 4096})}, "gemv_bulk"},
    {"TwoOf32Rows",
     {bf16_product({32, 512, 2048}), bf16_product({32, 512, 2048})},
     "gemv_streamed",
     2},
    {"TwoOf33Rows", {bf16_product({33, 512, 2048}), bf16_product({33, 512, 2048})}, "cublaslt"},
    {"TwoBehind12Mi", {bf16_product({32, 512, 2048}), bf16_product({32, 6144, 2048})}, "cublaslt"},
    // The first two together would meet the bound, but shorter runs are not tried.
    {"ThreeBehind12Mi",
     {bf16_product({32, 512, 2048}), bf16_product({32, 512, 2048}), bf16_product({32, 6144, 2048})},
     "cublaslt"},
    {"UpToAnotherFormat", {bf16_product({17, 512, 2048}), f32_product({17, 40, 2048})}, "cublaslt"},
    {"SideBySideInFp8", side_by_side({fp8_product(rows(64, qkv)), fp8_product(rows(64, qkv))}),
     "decoded", 1},  // two do not fit one panel
    {"FewerSideBySideInFp8",
     side_by_side({fp8_product({64, 4096, 2048}), fp8_product({64, 512, 2048}),
                   fp8_product({64, 512, 2048})}),
     "decoded", 3},
    {"RoundedOf8Rows", {coded_product(rows(8, qkv))}, "gemv_bulk_codes", 1, true, false, true},
    {"RoundedOf16Rows", {coded_product(rows(16, o))}, "gemv_bulk_codes", 1, true, false, true},
    {"RoundedOf17Rows",
     {coded_product(rows(17, qkv)), coded_product({17, 512, 2048})},
     "coded",
     2,
     true,
     false,
     true},
    {"InvariantRounded",
     {invariant(coded_product(rows(200, qkv)))},
     "gemv_streamed_codes",
     1,
     true,
     false,
     true},
    {"ApartInFp8", std::vector<Linear>(2, fp8_product({64, 512, 2048})), "decoded", 1},
    {"ThreeInInt4", std::vector<Linear>(3, int4_product({64, 5120, 2048})), "gemv_streamed_codes",
     3},
    {"UpToOtherGroups",
     {int4_product({64, 512, 2048}), int4_product({64, 512, 2048}, 64)},
     "gemv_streamed_codes"},
    {"TwoInvariant", std::vector<Linear>(2, invariant(int4_product({1, 512, 2048}))),
     "gemv_streamed_codes"},
    {"UpToAnInvariant",
     {int4_product({1, 512, 2048}), invariant(int4_product({1, 512, 2048}))},
     "gemv_streamed_codes"},
};

std::string name_of(const testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(FewRows, DenseSelection, testing::ValuesIn(few_rows), name_of);
INSTANTIATE_TEST_SUITE_P(Others, DenseSelection, testing::ValuesIn(other_products), name_of);
INSTANTIATE_TEST_SUITE_P(Together, DenseSelection, testing::ValuesIn(together), name_of);

// Latents of 512 and heads of 128; float32 rows, and bf16 weights beside the product's own.
LinearPerHead latent_product(std::int64_t rows) {
  LinearPerHead p{.product = f32_product({rows, per_head_width, per_head_latent}),
                  .narrow = bf16_product({rows, per_head_width, per_head_latent}).w};
  p.product.heads = 4;
  return p;
}
std::string_view chosen_for(const LinearPerHead& p) {
  FakeLibrary library(true);
  return select_dense({.products = {&p.product, 1},
                       .library = &library,
                       .transposed = p.transposed,
                       .per_head = &p})
      .kernel->info.name;
}

TEST(DenseSelectionPerHead, TakesFewRowsWithNarrowWeights) {
  LinearPerHead p = latent_product(256);
  EXPECT_EQ(chosen_for(p), "per_head");
  p.transposed = true;
  EXPECT_EQ(chosen_for(p), "per_head");
  p.product.out = 64;
  EXPECT_EQ(chosen_for(p), "cublaslt");
  EXPECT_EQ(chosen_for(latent_product(257)), "cublaslt");
  p = latent_product(1);
  p.narrow = {};
  EXPECT_EQ(chosen_for(p), "cublaslt");
  p = latent_product(1);
  p.product.batch_invariant = true;
  EXPECT_EQ(chosen_for(p), "cublaslt_batch_invariant");
}

// With batch_invariant a shape has one kernel for any number of rows. Adapters of rows are no part
// of a problem.
TEST(DenseSelectionLaws, InvariantProductsHaveOneArithmetic) {
  for (const bool algorithm : {true, false}) {
    FakeLibrary library(algorithm);
    for (const auto& make : {+[](const Size& s) { return bf16_product(s); },
                             +[](const Size& s) { return int4_product(s); },
                             +[](const Size& s) { return f32_product(s); }}) {
      std::set<std::string_view> arithmetics;
      for (const std::int64_t count : {1, 2, 8, 9, 16, 17, 32, 33, 64, 65, 8192}) {
        const Linear product = invariant(make(rows(count, o)));
        const DenseKernel& kernel =
            *select_dense({.products = {&product, 1}, .library = &library}).kernel;
        EXPECT_TRUE(kernel.batch_invariant) << kernel.info.name;
        arithmetics.insert(kernel.info.arithmetic.name);
      }
      EXPECT_EQ(arithmetics.size(), 1U);
    }
  }
}

TEST(DenseKernels, DescribeThemselves) {
  std::set<std::string_view> names;
  for (const DenseKernel* kernel : all_dense_kernels()) {
    SCOPED_TRACE(kernel->info.name);
    EXPECT_TRUE(names.insert(kernel->info.name).second);
    EXPECT_FALSE(kernel->info.arithmetic.name.empty());
    EXPECT_EQ(kernel->info.layout, WeightLayout::rows);
    EXPECT_GE(kernel->max_products, 1U);
    EXPECT_NE(kernel->run, nullptr);
    const bool library =
        kernel->info.name.starts_with("cublaslt") || kernel->info.name.starts_with("decoded");
    EXPECT_EQ(kernel->info.tile.outputs > 0, !library);
    EXPECT_EQ(kernel->info.tile.rows > 0, !library);
    EXPECT_EQ(kernel->info.tile.k > 0, !library);
    EXPECT_EQ(std::ranges::count(dense_thresholds, kernel, &DenseThreshold::kernel) > 0, true);
  }
}

TEST(DenseKernels, RefuseWithAReason) {
  FakeLibrary library(false);
  const auto reason = [&](const DenseKernel& kernel, std::vector<Linear> products,
                          bool transposed = false) {
    const Support support =
        kernel.supports({.products = products, .library = &library, .transposed = transposed});
    return support ? std::string("it can") : support.reason();
  };
  const Linear plain = bf16_product({1, 512, 2048});
  EXPECT_EQ(reason(gemv_bulk_kernel, {bf16_product({40, 512, 2048})}),
            "takes at most 16 rows, not 40");
  EXPECT_EQ(reason(gemv_bulk_kernel, {f32_product({1, 512, 2048})}),
            "reads rows of bf16 only, not of F32");
  EXPECT_EQ(reason(gemv_bulk_kernel, {int4_product({1, 512, 2048})}),
            "reads weights of bf16 only, not of int4");
  EXPECT_EQ(reason(gemv_bulk_kernel, std::vector<Linear>(5, plain)),
            "takes at most 4 products in a launch, not 5");
  EXPECT_EQ(reason(gemv_bulk_kernel, {bf16_product({1, 512, 520})}),
            "reads a number of inputs that 32 divides, not 520");
  EXPECT_EQ(reason(gemv_bulk_kernel, {plain}, true), "computes x W^T, not x W");
  EXPECT_THAT(reason(gemv_streamed_kernel, {plain, bf16_product({2, 512, 2048})}),
              HasSubstr("not 2 x 2048 in bf16 beside 1 x 2048 in bf16"));
  EXPECT_THAT(
      reason(gemv_streamed_codes_kernel, {int4_product({1, 512, 2048}, 48)}),
      HasSubstr("at least 32, or of whole rows, and MXFP4 and NVFP4, not int4 with scales of 48"));
  EXPECT_THAT(reason(decoded_kernel, {plain}), HasSubstr("int8, fp8 and fp4 only, not of bf16"));
  EXPECT_THAT(reason(per_head_kernel, {plain}), HasSubstr("in bf16 too"));
  EXPECT_THAT(reason(coded_kernel, {plain}), HasSubstr("not products of inputs as they are"));
  const auto coded_reason = [&](const Linear& product) {
    const ArrangeInputs inputs = inputs_of(product);
    const Support support =
        coded_kernel.supports({.products = {&product, 1}, .library = &library, .inputs = &inputs});
    return support ? std::string("it can") : support.reason();
  };
  const Linear coded = coded_product({200, 512, 2048});
  EXPECT_EQ(coded_reason(coded), "it can");
  EXPECT_THAT(coded_reason(changed(coded, [](Linear& l) { l.w.block_rows = 64; })),
              HasSubstr("not scales of 64 x 128"));
  EXPECT_THAT(coded_reason(changed(coded, [](Linear& l) { l.w.inputs.columns = 64; })),
              HasSubstr("or by 128 inputs, not these"));
  EXPECT_THAT(coded_reason(changed(coded, [](Linear& l) { l.w.kind = WeightKind::i8; })),
              HasSubstr("to the type of the weights' codes"));
  EXPECT_THAT(coded_reason(coded_product({200, 512, 1000})), HasSubstr("that 16 divides"));
  EXPECT_THAT(coded_reason(coded_product({200, 512, 64})), HasSubstr("at least 128 inputs"));
  EXPECT_THAT(coded_reason(invariant(coded)), HasSubstr("not batch-invariant"));
  EXPECT_THAT(reason(cublaslt_kernel, {plain}), HasSubstr("no algorithm without workspace for 1"));
  EXPECT_THAT(reason(cublaslt_kernel, {invariant(plain)}), HasSubstr("not batch-invariant"));
  EXPECT_THAT(reason(cublaslt_batch_invariant_kernel, {plain}), HasSubstr("batch-invariant only"));
  EXPECT_EQ(reason(exact_kernel, {plain}), "it can");
}

// A table without the kernel that supports everything.
TEST(DenseKernels, IfNoneFitsTheErrorListsAll) {
  FakeLibrary library(false);
  const Linear product = f32_product({40, 512, 2048});
  const DenseProblem problem{.products = {&product, 1}, .library = &library};
  const std::array table = {DenseThreshold{.kernel = &gemv_bulk_kernel},
                            DenseThreshold{.kernel = &gemv_bulk_kernel, .max_rows = 8},
                            DenseThreshold{.kernel = &exact_kernel, .max_rows = 8},
                            DenseThreshold{.kernel = &cublaslt_kernel}};
  EXPECT_EQ(select_dense(problem, table).kernel, nullptr);
  EXPECT_EQ(no_dense_kernel(problem, table).what(),
            "no kernel multiplies 40 rows with weights [512, 2048]: gemv_bulk: takes at most 16 "
            "rows, not 40; exact: it can, and no threshold lets it; cublaslt: cuBLASLt has no "
            "algorithm without workspace for 40 rows and weights [512, 2048] at these addresses");
}

// Each row must decide for some case: a row that earlier rows always hide is a mistake.
TEST(DenseThresholds, EveryRowIsReachedAndCitesARecord) {
  for (const DenseThreshold& row : dense_thresholds) {
    SCOPED_TRACE(row.kernel->info.name);
    EXPECT_TRUE(std::ranges::find(all_dense_kernels(), row.kernel) != all_dense_kernels().end());
    EXPECT_LE(row.min_products, row.max_products);
    EXPECT_LE(row.max_products, row.kernel->max_products);
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(MOTLEY_RECORDS) / row.record))
        << row.record;
  }
  std::set<std::size_t> reached;
  const auto visit = [&](const DenseProblem& problem) {
    const DenseChoice choice = select_dense(problem);
    // Finds the row that decided.
    for (std::size_t i = 0; i < dense_thresholds.size(); ++i) {
      const auto alone = select_dense(problem, std::span(dense_thresholds).subspan(i, 1));
      if (alone.kernel == nullptr) continue;
      EXPECT_EQ(alone.kernel, choice.kernel);
      reached.insert(i);
      return;
    }
  };
  for (const std::vector<Case>* cases : {&few_rows, &other_products, &together}) {
    for (const Case& c : *cases) {
      FakeLibrary library(c.library);
      const ArrangeInputs inputs = inputs_of(c.products[0]);
      visit({.products = c.products,
             .library = &library,
             .transposed = c.transposed,
             .inputs = c.rounds ? &inputs : nullptr});
    }
  }
  const LinearPerHead p = latent_product(1);
  FakeLibrary library(true);
  visit({.products = {&p.product, 1}, .library = &library, .per_head = &p});
  EXPECT_EQ(reached.size(), dense_thresholds.size());
}

}  // namespace
}  // namespace motley::kernels::cuda
