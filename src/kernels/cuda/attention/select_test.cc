// Which kernels attention selects, and the reasons they give. Needs no GPU.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/thresholds.h"

namespace motley::kernels::cuda {
namespace {

using testing::HasSubstr;

alignas(16) std::byte memory[64];

struct Case {
  std::int64_t key_width = 128;
  std::int64_t value_width = 128;
  std::int64_t group = 1;
  std::int64_t most = 1;  // the most rows of a sequence
  std::int64_t least = 1;
  bool batch_invariant = false;
  std::int64_t shared_width = 0;
  bool codes = false;
};

// As the runner lays out pages of codes.
Attention of_codes(const Case& shape, Attention problem) {
  const bool latent = shape.key_width == 576;
  const std::int64_t tail = latent ? 64 : 0;
  const auto pages = [&](std::int64_t width) -> Pages {
    return {.data = memory,
            .type = DType::f8_e4m3,
            .page_stride = 16 * (width + 2 * tail + 1),
            .token_stride = width,
            .head_stride = width};
  };
  problem.k = pages(shape.key_width - tail);
  problem.v = latent ? problem.k : pages(shape.value_width);
  problem.shared_k = {.data = memory,
                      .type = DType::bf16,
                      .page_stride = problem.k.page_stride / 2,
                      .token_stride = tail,
                      .head_stride = tail};
  problem.shared_width = tail;
  problem.q_type = DType::bf16;
  return problem;
}

Attention attention_of(const Case& shape) {
  if (shape.codes) {
    Case other = shape;
    other.codes = false;
    return of_codes(shape, attention_of(other));
  }
  const auto pages = [](std::int64_t width) -> Pages {
    return {.data = memory,
            .type = DType::bf16,
            .page_stride = 16 * width,
            .token_stride = width,
            .head_stride = width};
  };
  return {.sequences = {.count = 1,
                        .rows = shape.most,
                        .max_rows = shape.most,
                        .least_rows = shape.least},
          .table = {.pages = nullptr, .stride = 8, .page_tokens = 16},
          .k = pages(shape.key_width),
          .v = pages(shape.value_width),
          .shared_k = pages(shape.shared_width),
          .shared_width = shape.shared_width,
          .heads = shape.group,
          .kv_heads = 1,
          .key_width = shape.key_width,
          .value_width = shape.value_width,
          .batch_invariant = shape.batch_invariant};
}

// "few_8 1..8, many 33..".
std::string launches_of(const Attention& problem) {
  std::string all;
  for (const AttentionLaunch& launch : select_attention(problem).span()) {
    const bool bounded = launch.rows.max != std::numeric_limits<int>::max();
    all += cat(all.empty() ? "" : ", ", launch.kernel->info.name, " ", launch.rows.least, "..",
               bounded ? cat(launch.rows.max) : "");
  }
  return all;
}

TEST(SelectAttention, ChoosesByPackedRows) {
  struct Row {
    Case shape;
    std::string launches;
  };
  const Row table[] = {
      {{.group = 8}, "few_8 1..8"},
      {{.group = 9}, "few_16 1..16"},
      {{.group = 16}, "few_16 1..16"},
      {{.group = 17}, "few_32 1..32"},
      {{.group = 32}, "few_32 1..32"},
      {{.group = 33}, "many 33.."},
      {{.group = 8, .most = 4}, "few_32 1..32"},
      {{.group = 8, .most = 5}, "many 33.., few_32 1..32"},
      {{.group = 8, .most = 5, .least = 5}, "many 33.."},
      {{.group = 8, .most = 1024, .least = 4}, "many 33.., few_32 1..32"},
      {{.group = 8, .most = 1024, .batch_invariant = true}, "many_in_units 33.., few_32 1..32"},
      {{.key_width = 64, .value_width = 64, .group = 8}, "few_8 1..8"},
      {{.key_width = 64, .value_width = 64, .most = 100}, "many 33.., few_32 1..32"},
      {{.key_width = 192, .most = 2}, "few_8 1..8"},
      {{.key_width = 192, .most = 2, .shared_width = 64}, "many 1.."},
      {{.key_width = 192, .most = 2, .batch_invariant = true, .shared_width = 64},
       "many_in_units 1.."},
      {{.key_width = 192, .shared_width = 32}, "plain 1.."},
      {{.key_width = 256, .value_width = 256, .group = 8}, "few_8 1..8"},
      {{.key_width = 256, .value_width = 256, .group = 8, .most = 2}, "few_16 1..16"},
      {{.key_width = 256, .value_width = 256, .group = 8, .most = 40}, "many 33.., few_32 1..32"},
      {{.key_width = 256, .value_width = 256, .group = 8, .most = 40, .batch_invariant = true},
       "many_in_units 33.., few_32 1..32"},
      {{.key_width = 512, .value_width = 512, .group = 8}, "few_16 1..16"},
      {{.key_width = 512, .value_width = 512, .group = 8, .most = 40, .batch_invariant = true},
       "many 17.., few_16 1..16"},
      {{.key_width = 576, .value_width = 512, .group = 16}, "few_16 1..16"},
      {{.key_width = 576, .value_width = 512, .group = 17}, "many 17.."},
      {{.key_width = 576, .value_width = 512, .group = 16, .most = 2}, "many 17.., few_16 1..16"},
      {{.key_width = 576, .value_width = 512, .group = 16, .most = 2, .batch_invariant = true},
       "many 17.., few_16 1..16"},
      {{.key_width = 576, .value_width = 512, .shared_width = 64}, "plain 1.."},
      {{.group = 8, .codes = true}, "few_codes_8 1..8"},
      {{.group = 16, .codes = true}, "few_codes_16 1..16"},
      {{.group = 8, .most = 5, .codes = true}, "many_codes 17.., few_codes_16 1..16"},
      {{.group = 8, .most = 5, .batch_invariant = true, .codes = true},
       "many_codes 17.., few_codes_16 1..16"},
      {{.key_width = 64, .value_width = 64, .group = 8, .codes = true}, "few_codes_8 1..8"},
      {{.key_width = 256, .value_width = 256, .group = 8, .codes = true}, "few_codes_8 1..8"},
      {{.key_width = 256, .value_width = 256, .group = 16, .most = 2, .codes = true},
       "many_codes 17.., few_codes_16 1..16"},
      {{.key_width = 512, .value_width = 512, .group = 8, .most = 2, .codes = true},
       "few_codes_16 1..16"},
      {{.key_width = 576, .value_width = 512, .group = 16, .codes = true}, "plain 1.."},
      {{.key_width = 192, .codes = true}, "plain 1.."},
      {{.key_width = 96, .value_width = 96}, "plain 1.."},
      {{.key_width = 128, .value_width = 64}, "plain 1.."},
      {{.key_width = 2048, .value_width = 2048}, ""},
  };
  for (const Row& row : table) {
    const Case& s = row.shape;
    EXPECT_EQ(launches_of(attention_of(s)), row.launches)
        << s.key_width << "/" << s.value_width << ", groups of " << s.group << ", " << s.least
        << " to " << s.most << " rows";
  }
}

// A row's bits do not depend on how many rows of its sequence are in a step, nor on its company.
TEST(SelectAttention, BatchInvariantLaunchesHaveOneArithmetic) {
  for (const AttentionThreshold& row : attention_thresholds) {
    if (row.kernel->key_width == 0) continue;
    for (const bool codes : {false, true}) {
      std::set<std::string_view> arithmetics;
      for (const std::int64_t group : {1, 3, 8, 16, 17, 40})
        for (const std::int64_t most : {1, 2, 5, 33, 1000})
          for (const AttentionLaunch& launch :
               select_attention(attention_of({.key_width = row.kernel->key_width,
                                              .value_width = row.kernel->value_width,
                                              .group = group,
                                              .most = most,
                                              .batch_invariant = true,
                                              .codes = codes}))
                   .span())
            arithmetics.insert(launch.kernel->info.arithmetic.name);
      EXPECT_EQ(arithmetics.size(), 1)
          << row.kernel->key_width << "/" << row.kernel->value_width << (codes ? ", codes: " : ": ")
          << testing::PrintToString(arithmetics);
    }
  }
}

// What the tensor cores cannot read uses the plain kernel, which does not round queries.
TEST(SelectAttention, OtherPagesGoThePlainWay) {
  const auto plain = [](auto change) {
    Attention problem = attention_of({.group = 8, .most = 40});
    change(problem);
    EXPECT_EQ(attention_queries(problem), DType::f32);
    return launches_of(problem) == "plain 1..";
  };
  EXPECT_EQ(attention_queries(attention_of({})), DType::bf16);
  EXPECT_TRUE(plain([](Attention& p) { p.k.type = DType::f32; }));
  EXPECT_TRUE(plain([](Attention& p) { p.table.page_tokens = 8; }));
  EXPECT_TRUE(plain([](Attention& p) { p.table.page_tokens = 24; }));
  EXPECT_TRUE(plain([](Attention& p) { p.k.token_stride = 130; }));
  EXPECT_TRUE(plain([](Attention& p) { p.v.data = memory + 8; }));
  EXPECT_TRUE(plain([](Attention& p) { p.q = memory + 8; }));
  EXPECT_TRUE(plain([](Attention& p) { p.out_head_stride = 2; }));
  EXPECT_TRUE(plain([](Attention& p) { p.scale = 0; }));
  Attention one_page = attention_of({.group = 8});
  one_page.table = {.pages = nullptr, .stride = 1, .page_tokens = 24};
  EXPECT_EQ(launches_of(one_page), "few_8 1..8");
}

// In float32 mode queries are float32, and nothing rounds them.
TEST(SelectAttention, CodesWithQueriesInFloat32GoThePlainWay) {
  Attention problem = attention_of({.group = 8, .codes = true});
  EXPECT_EQ(attention_queries(problem), DType::bf16);
  problem.q_type = DType::f32;
  EXPECT_EQ(attention_queries(problem), DType::f32);
  EXPECT_EQ(launches_of(problem), "plain 1..");
  Attention latent = attention_of({.key_width = 576, .value_width = 512, .codes = true});
  EXPECT_EQ(launches_of(latent), "plain 1..");
  latent.k.fixed_scale = 0.5F;
  EXPECT_EQ(launches_of(latent), "plain 1..");
}

TEST(SelectAttention, EveryRowIsReachedAndCitesItsRecord) {
  std::vector<const AttentionKernel*> reached;
  for (const AttentionThreshold& row : attention_thresholds)
    for (const std::int64_t rows : {8, 16, 32, 33})
      for (const bool batch_invariant : {false, true}) {
        const std::int64_t width = std::max<std::int64_t>(row.kernel->key_width, 24);
        const Attention problem =
            attention_of({.key_width = width,
                          .value_width = std::max<std::int64_t>(row.kernel->value_width, 24),
                          .group = rows,
                          .batch_invariant = batch_invariant,
                          .codes = row.kernel->supports == supports_codes});
        for (const AttentionLaunch& launch : select_attention(problem).span())
          reached.push_back(launch.kernel);
      }
  for (const AttentionThreshold& row : attention_thresholds) {
    EXPECT_THAT(reached, testing::Contains(row.kernel))
        << row.kernel->info.name << " " << row.kernel->key_width;
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(MOTLEY_RECORDS) / row.record))
        << row.record;
  }
}

TEST(SelectAttention, RefusalsAreWords) {
  const std::string all = refusals(attention_of({.key_width = 2048, .value_width = 2048}));
  EXPECT_THAT(all, HasSubstr("plain: it takes widths up to 1024"));
  EXPECT_THAT(all, HasSubstr("few_8: it takes keys of 64 and values of 64"));
}

TEST(SelectAttention, GatesAreOfHeadsWithEqualWidths) {
  const float gate = 0;
  for (const std::int64_t width : {64, 128, 256, 512}) {
    Attention p = attention_of({.key_width = width, .value_width = width});
    const Attention without = p;
    p.gates.data = &gate;
    EXPECT_EQ(select_attention(p).span()[0].kernel, select_attention(without).span()[0].kernel);
  }
  Attention latent = attention_of({.key_width = 576, .value_width = 512});
  latent.gates.data = &gate;
  EXPECT_EQ(select_attention(latent).span()[0].kernel, &plain_attention);
  EXPECT_THAT(refusals(latent), HasSubstr("it takes gates of heads whose keys are as wide"));
}

// The descriptor's tile rows agree with the instance and the bound of the launch.
TEST(SelectAttention, DescriptorsAgreeWithTheirInstances) {
  for (const AttentionThreshold& row : attention_thresholds) {
    if (row.kernel->instance == nullptr) continue;
    const tiles::Instance instance = row.kernel->instance();
    EXPECT_EQ(instance.rows, row.kernel->info.tile.rows) << row.kernel->info.name;
    if (row.max_packed != any_packed_rows) {
      EXPECT_EQ(instance.rows, row.max_packed);
    }
    EXPECT_EQ(instance.waits, row.kernel->info.arithmetic == attention_of_wide_values &&
                                  row.max_packed != any_packed_rows);
  }
}

}  // namespace
}  // namespace motley::kernels::cuda
