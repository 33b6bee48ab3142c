#include "kernels/cuda/tuned_thresholds.h"

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/system/files.h"
#include "kernels/cuda/experts/grouped.h"
#include "kernels/cuda/linear/library.h"
#include "kernels/tuning/candidates.h"

// What a user's tuning changes in selection. Needs no GPU.
namespace motley::kernels::cuda {
namespace {

using testing::HasSubstr;

class AnyLibrary final : public MatmulLibrary {
 public:
  void* panel() override { return nullptr; }
  bool supports(const Linear&, bool) override { return true; }
  void multiply(const Linear&, bool, StreamHandle) override {}
};

alignas(256) constexpr std::byte memory[256] = {};
alignas(256) float results[64];

Linear bf16_product(std::int64_t rows, std::int64_t out, std::int64_t in = 2048) {
  return {.rows = rows,
          .x = memory,
          .x_type = DType::bf16,
          .x_stride = in,
          .w = {.kind = WeightKind::bf16, .data = memory, .out = out, .in = in},
          .w_rows_per_head = out,
          .out = out,
          .y = results,
          .y_stride = out,
          .exact = false};
}

std::unique_ptr<const DeviceThresholds> thresholds(const Tuning& tuning) {
  return DeviceThresholds::make(&tuning).value();
}

Tuning dense_tuning(std::vector<std::int64_t> outputs, std::vector<TunedRow> rows) {
  return {.file = "f.json",
          .dense = {
              {.shape = {.inputs = 2048, .outputs = std::move(outputs)}, .rows = std::move(rows)}}};
}

DenseChoice choose(const DeviceThresholds& table, std::vector<Linear> products) {
  static AnyLibrary library;
  return select_dense({.products = products, .library = &library}, table.dense());
}

TEST(TunedThresholds, WithoutATuningAreTheBuiltInOnes) {
  const auto table = DeviceThresholds::make(nullptr).value();
  EXPECT_EQ(table->dense().size(), dense_thresholds.size());
  EXPECT_EQ(table->experts().size(), grouped::expert_thresholds.size());
}

TEST(TunedThresholds, RowsOfTheShapeComeFirst) {
  const auto table = thresholds(
      dense_tuning({5120}, {{.up_to = 4, .kernel = "cublaslt"}, {.kernel = "gemv_streamed"}}));
  EXPECT_EQ(choose(*table, {bf16_product(4, 5120)}).kernel, &cublaslt_kernel);
  EXPECT_EQ(choose(*table, {bf16_product(5, 5120)}).kernel, &gemv_streamed_kernel);
  EXPECT_EQ(choose(*table, {bf16_product(4096, 5120)}).kernel, &gemv_streamed_kernel);
  // Other shapes keep the built-in rows.
  EXPECT_EQ(choose(*table, {bf16_product(4, 5128)}).kernel, &gemv_bulk_kernel);
  EXPECT_EQ(choose(*table, {bf16_product(4, 5120, 4096)}).kernel, &gemv_bulk_kernel);
}

TEST(TunedThresholds, AKernelThatRefusesIsPassedOver) {
  const auto table = thresholds(dense_tuning({5120}, {{.kernel = "gemv_bulk"}}));
  EXPECT_EQ(choose(*table, {bf16_product(16, 5120)}).kernel, &gemv_bulk_kernel);
  EXPECT_EQ(choose(*table, {bf16_product(17, 5120)}).kernel, &cublaslt_kernel);
}

TEST(TunedThresholds, ARowServesItsProductsToTheLast) {
  const auto one_by_one = thresholds(dense_tuning({4096, 512, 512}, {{.kernel = "cublaslt"}}));
  std::vector<Linear> products{bf16_product(8, 4096), bf16_product(8, 512), bf16_product(8, 512)};
  EXPECT_EQ(choose(*one_by_one, products).kernel, &cublaslt_kernel);
  EXPECT_EQ(choose(*one_by_one, products).products, 1);
  products.erase(products.begin());
  EXPECT_EQ(choose(*one_by_one, products).kernel, &cublaslt_kernel);
  const auto together = thresholds(dense_tuning({4096, 512, 512}, {{.kernel = "gemv_streamed"}}));
  EXPECT_EQ(
      choose(*together, {bf16_product(64, 4096), bf16_product(64, 512), bf16_product(64, 512)})
          .products,
      3);
}

TEST(TunedThresholds, ProductsOfAnotherFormatBehindThemDoNotMatter) {
  const auto table = thresholds(dense_tuning({5120}, {{.kernel = "cublaslt"}}));
  Linear codes = bf16_product(8, 512);
  codes.w.kind = WeightKind::int4;
  codes.w.block_columns = 128;
  EXPECT_EQ(choose(*table, {bf16_product(8, 5120), codes}).kernel, &cublaslt_kernel);
  EXPECT_EQ(choose(*table, {bf16_product(8, 5120), bf16_product(8, 512)}).kernel,
            &gemv_bulk_kernel);
}

TEST(TunedThresholds, BatchInvariantProductsKeepTheBuiltInRows) {
  const auto table = thresholds(dense_tuning({5120}, {{.kernel = "gemv_bulk"}}));
  for (const std::int64_t rows : {1, 16, 17, 500}) {
    Linear product = bf16_product(rows, 5120);
    product.batch_invariant = true;
    EXPECT_EQ(choose(*table, {product}).kernel, &cublaslt_batch_invariant_kernel);
  }
}

TEST(TunedThresholds, ProductsOfOtherKindsKeepTheirs) {
  const auto table = thresholds(dense_tuning({5120}, {{.kernel = "gemv_streamed"}}));
  AnyLibrary library;
  const Linear product = bf16_product(8, 5120);
  EXPECT_EQ(select_dense({.products = {&product, 1}, .library = &library, .transposed = true},
                         table->dense())
                .kernel,
            &cublaslt_kernel);
}

TEST(TunedThresholds, TilesFollowTheLayerItsTokensAndAdapters) {
  TunedExperts plain{
      .shape =
          {.bits = 16, .experts = 128, .hidden = 2048, .intermediate = 768, .experts_per_token = 8},
      .rows = {{.up_to = 64, .kernel = "128x16 copies"}, {.kernel = "256x64 permuted"}},
      .times = {}};
  TunedExperts adapted = plain;
  adapted.shape.adapters = true;
  adapted.rows = {{.kernel = "128x8 copies"}};
  GroupedExperts layer;
  layer.shape = {.experts = 128, .hidden = 2048, .intermediate = 768};
  layer.experts_per_token = 8;
  const auto tiles = [&](const DeviceThresholds& table, std::int64_t tokens) {
    layer.tokens = tokens;
    return choose_grouped_tiles(layer, table.experts());
  };
  const auto both = thresholds({.file = "f.json", .experts = {plain, adapted}});
  EXPECT_EQ(name_of(tiles(*both, 64)), "128x16 copies");
  EXPECT_EQ(name_of(tiles(*both, 65)), "256x64 permuted");
  constexpr std::int32_t label = 0;
  layer.deltas.labels = &label;
  layer.deltas.max_terms = 1;
  EXPECT_EQ(name_of(tiles(*both, 65)), "128x8 copies");
  // Steps with adapters keep the built-in rows where only others were measured, and so do layers of
  // other shapes.
  const auto one = thresholds({.file = "f.json", .experts = {plain}});
  layer.tokens = 64;
  EXPECT_EQ(tiles(*one, 64), choose_grouped_tiles(layer));
  layer.deltas.labels = nullptr;
  layer.shape.intermediate = 1024;
  EXPECT_EQ(tiles(*both, 64), choose_grouped_tiles(layer));
}

WeightView bf16_weight(std::int64_t out, std::int64_t in) {
  return {.kind = WeightKind::bf16, .data = memory, .out = out, .in = in};
}

TEST(DescribedSelection, NamesKernelsAndWhatWasPassedOver) {
  const WeightView usual = bf16_weight(4096, 2048);
  const auto plain = describe_dense({.products = {&usual, 1}});
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->few, "gemv_bulk");
  EXPECT_EQ(plain->many, "cublaslt");
  EXPECT_TRUE(plain->passed_over.empty());

  const WeightView odd = bf16_weight(4096, 520);
  const auto passed = describe_dense({.products = {&odd, 1}});
  EXPECT_EQ(passed->few, "gemv_streamed");
  ASSERT_EQ(passed->passed_over.size(), 1);
  EXPECT_EQ(passed->passed_over[0].kernel, "gemv_bulk");
  EXPECT_THAT(passed->passed_over[0].reason, HasSubstr("that 32 divides, not 520"));

  WeightView codes = bf16_weight(4096, 2048);
  codes.kind = WeightKind::int4;
  codes.block_columns = 48;
  const auto groups = describe_dense({.products = {&codes, 1}});
  EXPECT_EQ(groups->few, "decoded");
  ASSERT_EQ(groups->passed_over.size(), 1);
  EXPECT_EQ(groups->passed_over[0].kernel, "gemv_streamed_codes");
}

TEST(DescribedSelection, FollowsOptionsAndTheTuning) {
  const WeightView weight = bf16_weight(5120, 2048);
  EXPECT_EQ(describe_dense({.products = {&weight, 1}, .exact = true})->few, "exact");
  EXPECT_EQ(describe_dense({.products = {&weight, 1}, .batch_invariant = true})->few,
            "cublaslt_batch_invariant");
  const Tuning tuning =
      dense_tuning({5120}, {{.up_to = 4, .kernel = "cublaslt"}, {.kernel = "gemv_streamed"}});
  const auto tuned = describe_dense({.products = {&weight, 1}, .tuning = &tuning});
  EXPECT_EQ(tuned->few, "cublaslt");
  EXPECT_EQ(tuned->many, "gemv_streamed");
  EXPECT_TRUE(check_tuning(tuning).ok());
}

TEST(TunedThresholds, RefusesUnknownKernels) {
  const Tuning dense = dense_tuning({5120}, {{.kernel = "gemv"}});
  const auto failed = DeviceThresholds::make(&dense);
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().message(),
              HasSubstr("no dense kernel 'gemv' (f.json, dense[0], kernels)"));
  EXPECT_THAT(failed.error().message(), HasSubstr("gemv_bulk"));
  const Tuning experts{.file = "f.json", .experts = {{.shape = {}, .rows = {{.kernel = "1x1"}}}}};
  EXPECT_FALSE(DeviceThresholds::make(&experts).ok());
}

// The tables in bench/tuning name kernels that there are, and a record in bench/results.
TEST(TunedThresholds, OursAreWhole) {
  const std::filesystem::path records(MOTLEY_RECORDS);
  const auto told = read_text(records / "2026-11-28-tuned-thresholds.md", std::size_t{1} << 20);
  ASSERT_TRUE(told.ok()) << told.error().message();
  int tables = 0;
  for (const auto& entry : std::filesystem::directory_iterator(records.parent_path() / "tuning")) {
    const std::string name = entry.path().filename().string();
    const auto text = read_text(entry.path(), std::size_t{1} << 20);
    ASSERT_TRUE(text.ok()) << name;
    const auto tuning = parse_tuning(*text, name);
    ASSERT_TRUE(tuning.ok()) << tuning.error().message();
    EXPECT_TRUE(check_tuning(*tuning).ok()) << name;
    EXPECT_EQ(tuning->card, "NVIDIA H200");
    EXPECT_THAT(*told, HasSubstr(name));
    ++tables;
  }
  EXPECT_GE(tables, 2);
}

TEST(TunedThresholds, TilesHaveNamesOfTheirOwn) {
  std::vector<std::string> names;
  for (const GroupedTiles& tiles : all_grouped_tiles) names.push_back(name_of(tiles));
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
}

}  // namespace
}  // namespace motley::kernels::cuda
