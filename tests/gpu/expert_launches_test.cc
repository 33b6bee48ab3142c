// Every launch of the expert layer ends, in every tiling of every format, with adapters of small
// and of large rank, one after the other as in a step, however many of its blocks are resident.
#include <array>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "gpu/held_multiprocessors.h"
#include "gpu/launch_watch.h"
#include "gpu/random_experts.h"
#include "kernels/cuda/tuned_thresholds.h"

namespace motley::gpu_tests {
namespace {

using namespace kernels::cuda;  // NOLINT(google-build-using-namespace): the test's subject

// As Qwen3-30B-A3B's: more items than blocks from a few tokens on, and with adapters more pieces
// than blocks.
constexpr ExpertShape shape{.experts = 128, .hidden = 2048, .intermediate = 768};
constexpr int experts_per_token = 8;
constexpr int layers = 4;  // in a row
constexpr int adapters_count = 4;
constexpr std::array<std::int64_t, 15> every_size{1,  2,  4,  7,   8,   16,  24, 32,
                                                  48, 64, 96, 128, 200, 256, 512};

class ExpertLaunches : public testing::TestWithParam<ExpertFormat> {
 protected:
  ExpertLaunches() : experts_(GetParam(), shape), batch_(experts_, experts_per_token, 512, layers) {
    for (const DType type : {DType::bf16, DType::f8_e4m3})
      for (const int rank : {8, 64})
        adapters_.push_back(std::make_unique<RandomAdapters>(shape, adapters_count, rank, type));
    // Memory for the largest, so that none is taken between launches.
    for (const auto& each : adapters_) batch_.set(512, each.get());
  }

  std::vector<const RandomAdapters*> all_adapters() const {
    std::vector<const RandomAdapters*> all{nullptr};
    for (const auto& each : adapters_) all.push_back(each.get());
    return all;
  }

  // Runs all tilings that support the batch, which have the same bits. Returns how many ran.
  int run_all() {
    int ran = 0;
    std::vector<std::uint16_t> first;
    const GroupedExperts& g = batch_.params();
    for (const GroupedTiles& tiles : all_grouped_tiles) {
      if (!grouped_supports(tiles, g)) continue;
      const bool f8 = g.deltas.factor_type == DType::f8_e4m3;
      const std::string launch = cat(name_of(tiles), ", format ", static_cast<int>(GetParam()),
                                     ", ", g.tokens, " tokens, columns of adapters in rank space ",
                                     g.deltas.max_gate_up_rank, f8 ? " in FP8" : "");
      const LaunchWatch watch(launch);
      const std::vector<std::uint16_t> out = batch_.run(tiles);
      if (first.empty()) first = out;
      EXPECT_EQ(out == first, true) << launch << " has other bits";
      tilings_.insert(name_of(tiles));
      ++ran;
    }
    return ran;
  }

  RandomExperts experts_;
  RandomBatch batch_;
  std::vector<std::unique_ptr<RandomAdapters>> adapters_;
  std::set<std::string> tilings_;
};

// How many tilings a format has, as all_grouped_tiles names them, and how many of them support the
// batches below, counted over all: what is refused from now on shows here.
struct Expected {
  std::size_t tilings;
  int launches;
};
Expected expected(ExpertFormat format) {
  if (has_coded_inputs(format)) return {6, 330};
  if (format == ExpertFormat::bf16) return {26, 1121};
  if (blob_layout(format).bits == 8) return {22, 1081};
  return format == ExpertFormat::nvfp4 ? Expected{30, 1509} : Expected{32, 1659};
}

TEST_P(ExpertLaunches, EveryTilingEnds) {
  int ran = 0;
  for (const RandomAdapters* const adapters : all_adapters())
    for (const std::int64_t tokens : every_size) {
      batch_.set(tokens, adapters);
      ran += run_all();
      if (HasFailure()) return;
    }
  EXPECT_GE(tilings_.size(), expected(GetParam()).tilings);
  EXPECT_GE(ran, expected(GetParam()).launches);
}

// Blocks that start late must hold nothing that others wait for.
TEST_P(ExpertLaunches, EveryTilingEndsWhileHalfOfTheGpuIsTaken) {
  const auto run = [&] {
    int ran = 0;
    for (const RandomAdapters* const adapters : all_adapters())
      for (const std::int64_t tokens : {1, 48, 96, 512}) {
        batch_.set(tokens, adapters);
        ran += run_all();
      }
    return ran;
  };
  // Kernels are loaded by their first launch, which waits for the whole GPU.
  const int free = run();
  if (HasFailure()) return;
  int multiprocessors = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0),
            cudaSuccess);
  HeldMultiprocessors held(multiprocessors / 2);
  EXPECT_EQ(run(), free);
  held.release();
}

std::string format_name(const testing::TestParamInfo<ExpertFormat>& info) {
  constexpr std::array<const char*, 14> names{
      "bf16", "int4",     "int4_fine", "int4_any", "int4_any_fine", "int8",      "int8_any_fine",
      "fp8",  "fp8_fine", "mxfp8",     "mxfp4",    "nvfp4",         "int8_rows", "fp8_rows"};
  return names.at(static_cast<std::size_t>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Formats, ExpertLaunches, testing::ValuesIn(all_expert_formats),
                         format_name);

}  // namespace
}  // namespace motley::gpu_tests
