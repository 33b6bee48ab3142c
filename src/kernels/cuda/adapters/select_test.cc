// Which kernels deltas select, and the reasons they give. Needs no GPU.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "kernels/cuda/thresholds.h"

namespace motley::kernels::cuda {
namespace {

using testing::HasSubstr;

alignas(16) const std::int32_t memory[64] = {};

// q, k and v of bf16 rows with bf16 factors of rank 16, with listed groups.
struct Call {
  AdaptLinears linears;

  explicit Call(std::int64_t rows) {
    linears.adapters = {.rows = rows,
                        .groups = {.counts = memory, .groups = nullptr, .order = nullptr},
                        .factor_type = DType::bf16};
    linears.x = memory;
    linears.x_type = DType::bf16;
    linears.x_stride = linears.in = 2048;
    linears.count = 1;
    linears.max_ranks = 16;
    linears.linears[0] = {.out = 2048, .acc_stride = 2048, .result_stride = 2048};
  }
};

std::string name_of(const Delta* delta) {
  return delta == nullptr ? "none" : std::string(delta->expand().info.name);
}

// The thresholds restated, one condition each.
std::string expected(const AdaptLinears& call) {
  const bool tensor_cores = call.x_type == DType::bf16 && call.in > 0 && call.in % 8 == 0 &&
                            call.x_stride % 8 == 0 && call.adapters.factor_type != DType::f32;
  if (!tensor_cores) return call.adapters.rows <= 128 ? "expand_plain_1" : "expand_plain_8";
  if (call.adapters.rows > 256) return "expand_panels";
  const bool slices = call.many_labels && call.adapters.groups.counts != nullptr &&
                      call.max_ranks <= rank_chunk / 2;
  return slices ? "expand_slices" : "delta_in_cluster";
}

// Calls body(call) for shapes on both sides of every bound.
template <class Body>
void sweep(const Body& body) {
  for (const std::int64_t rows : {1, 16, 128, 129, 256, 257, 8192})
    for (const std::int64_t in : {2048, 2052, 37})
      for (const DType x : {DType::bf16, DType::f32})
        for (const DType type : {DType::bf16, DType::f8_e4m3, DType::f32})
          for (const std::int32_t ranks : {0, 16, 128, 129, 1024})
            for (const bool many_labels : {false, true})
              for (const bool listed : {false, true}) {
                Call call(rows);
                call.linears.in = call.linears.x_stride = in;
                call.linears.x_type = x;
                call.linears.adapters.factor_type = type;
                call.linears.max_ranks = ranks;
                call.linears.many_labels = many_labels;
                if (!listed) call.linears.adapters.groups.counts = nullptr;
                body(call.linears);
              }
}

TEST(SelectDelta, ChoosesByRowsLabelsAndTypes) {
  sweep([](const AdaptLinears& call) {
    ASSERT_EQ(name_of(select_delta({.linears = call})), expected(call))
        << call.adapters.rows << " rows of " << call.in << ", " << call.max_ranks << " ranks";
  });
}

// For few rows the epilogue kernels are not worth a launch of their own behind q, k and v.
TEST(SelectDelta, HeadsAndNormsAreOfManyRows) {
  for (const std::int64_t rows : {1, 256, 257, 4096}) {
    Call call(rows);
    const Heads part{.heads = 16,
                     .width = 128,
                     .x = call.linears.linears[0].acc,
                     .x_stride = 2048,
                     .x_head_stride = 128};
    const PrepareHeads heads{.rows = rows, .all = &part, .count = 1};
    const AddAndNorm norm{.add = {.rows = rows,
                                  .width = 2048,
                                  .a_stride = 2048,
                                  .b_stride = 2048,
                                  .out_stride = 2048},
                          .norm = {.out_type = DType::bf16, .out_stride = 2048}};
    const bool many = rows > few_adapted_rows;
    EXPECT_EQ(name_of(select_delta(
                  {.linears = call.linears, .epilogue = Epilogue::heads, .heads = &heads})),
              many ? "expand_heads" : "none");
    EXPECT_EQ(
        name_of(select_delta({.linears = call.linears, .epilogue = Epilogue::norm, .norm = &norm})),
        many ? "expand_norm" : "none");
    call.linears.max_ranks = rank_chunk;
    EXPECT_EQ(
        name_of(select_delta({.linears = call.linears, .epilogue = Epilogue::norm, .norm = &norm})),
        "none");
  }
}

TEST(SelectDelta, EveryRowIsReachedAndCitesItsRecord) {
  std::vector<const Delta*> reached;
  sweep([&](const AdaptLinears& call) { reached.push_back(select_delta({.linears = call})); });
  for (const DeltaThreshold& row : delta_thresholds) {
    if (row.delta.expand().epilogue == Epilogue::store) {
      EXPECT_THAT(reached, testing::Contains(&row.delta)) << row.delta.expand().info.name;
    }
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(MOTLEY_RECORDS) / row.record))
        << row.record;
  }
}

TEST(SelectDelta, RefusalsAreWords) {
  Call call(300);
  EXPECT_THAT(refusals({.linears = call.linears}), HasSubstr("it takes at most 256 rows"));
  call.linears.x_type = DType::f32;
  EXPECT_THAT(refusals({.linears = call.linears}),
              HasSubstr("shrink_panels and expand_panels: it reads rows of bf16"));
  call.linears.x_type = DType::bf16;
  call.linears.adapters.factor_type = DType::f32;
  EXPECT_THAT(refusals({.linears = call.linears}), HasSubstr("it reads factors in bf16 or FP8"));
}

// A chunk never splits a panel; it may split terms, at a multiple of 8.
TEST(SelectDelta, RankChunksFollowFromTheLayout) {
  EXPECT_EQ(rank_chunks(RankLayout::terms, 0), 1);
  EXPECT_EQ(rank_chunks(RankLayout::terms, 256), 1);
  EXPECT_EQ(rank_chunks(RankLayout::terms, 264), 2);
  EXPECT_EQ(rank_chunks(RankLayout::panels, 192), 1);
  EXPECT_EQ(rank_chunks(RankLayout::panels, 200), 2);
  EXPECT_EQ(rank_chunks(RankLayout::slices, 128), 1);
}

}  // namespace
}  // namespace motley::kernels::cuda
