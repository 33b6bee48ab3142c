#include <algorithm>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "gpu/device_plan.h"
#include "plan/plan.h"

// The device's plan against the host's.
namespace motley::gpu_tests {
namespace {

enum class Routing : std::uint8_t { spread, strange, one_expert, own_group };
enum class Labelling : std::uint8_t { none, some, all_different, one };

struct Case {
  std::int64_t tokens;
  int experts_per_token;
  int experts;
  Routing routing;
  Labelling labelling;
  int label_count;
  int tile_places;
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return cat("tokens", c.tokens, "_top", c.experts_per_token, "_of", c.experts, "_routing",
             int(c.routing), "_labels", int(c.labelling), "x", c.label_count, "_tile",
             c.tile_places);
}

struct Input {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;
};

Input make_input(const Case& c, unsigned seed) {
  std::mt19937 random(seed);
  Input input;
  std::vector<std::int32_t> experts(std::size_t(c.experts));
  std::iota(experts.begin(), experts.end(), 0);
  for (std::int64_t token = 0; token < c.tokens; ++token) {
    std::shuffle(experts.begin(), experts.end(), random);
    for (int slot = 0; slot < c.experts_per_token; ++slot) {
      std::int32_t id = experts[std::size_t(slot % c.experts)];
      if (c.routing == Routing::one_expert) id = c.experts / 2;
      if (c.routing == Routing::own_group) {
        // Tokens of one label go to experts of their own.
        const std::int64_t round = token / c.label_count;
        const std::int64_t first = round * c.experts_per_token + token % c.label_count;
        id = std::int32_t((first + slot) % c.experts);
      }
      if (c.routing == Routing::strange && random() % 4 == 0) {
        constexpr std::int32_t far = 1 << 30;
        const std::int32_t strange[] = {-1, -far, c.experts, c.experts + 1, far};
        id = strange[random() % 5];
      }
      input.ids.push_back(id);
    }
    if (c.labelling == Labelling::none) continue;
    const auto count = std::uint32_t(c.label_count);
    std::int32_t label = std::int32_t(random() % (count + 1)) - 1;
    if (c.labelling == Labelling::all_different) label = std::int32_t(token % c.label_count);
    if (c.labelling == Labelling::one) label = c.label_count - 1;
    input.labels.push_back(label);
  }
  return input;
}

class ExpertPlan : public testing::TestWithParam<Case> {};

TEST_P(ExpertPlan, EqualsTheHosts) {
  const Case& c = GetParam();
  for (unsigned seed = 1; seed <= 2; ++seed) {
    const Input input = make_input(c, seed);
    DevicePlan device(input.ids, input.labels, c.label_count,
                      {c.tokens, c.experts_per_token, c.experts, c.tile_places});
    device.build();
    finish();
    plan::Plan host(c.tokens, c.experts_per_token, c.experts);
    std::vector<std::int32_t> labels = input.labels;
    labels.resize(std::size_t(c.tokens), plan::no_label);
    host.build(input.ids, labels);
    if (c.routing == Routing::own_group) {
      ASSERT_EQ(std::ssize(host.segments()), host.pairs());
    }
    EXPECT_THAT(device.order(), testing::ElementsAreArray(host.order()));
    EXPECT_THAT(device.tokens(), testing::ElementsAreArray(host.tokens_in_order()));
    EXPECT_THAT(device.places(), testing::ElementsAreArray(host.places()));
    EXPECT_THAT(device.expert_begin(), testing::ElementsAreArray(host.expert_begin()));

    // Tiles cut the experts' places, pieces cut the host's labelled segments at tiles.
    const auto tile_begin = device.tile_begin();
    const auto tiles = device.tiles();
    const auto piece_begin = device.piece_begin();
    const auto pieces = device.pieces();
    std::int32_t tile = 0;
    std::int32_t piece = 0;
    for (std::int32_t expert = 0; expert < c.experts; ++expert) {
      ASSERT_EQ(tile_begin[std::size_t(expert)], tile);
      const std::int32_t end = host.expert_begin()[std::size_t(expert) + 1];
      for (std::int32_t begin = host.expert_begin()[std::size_t(expert)]; begin < end; ++tile) {
        const kernels::cuda::ExpertTile& got = tiles[std::size_t(tile)];
        const std::int32_t count = std::min(c.tile_places, end - begin);
        ASSERT_THAT((std::vector{got.expert, got.begin, got.count}),
                    testing::ElementsAre(expert, begin, count));
        if (!input.labels.empty()) {
          ASSERT_EQ(piece_begin[std::size_t(tile)], piece);
        }
        const auto first = std::size_t(host.segment_begin()[std::size_t(expert)]);
        const auto last = std::size_t(host.segment_begin()[std::size_t(expert) + 1]);
        for (const plan::Segment& segment : host.segments().subspan(first, last - first)) {
          if (segment.label < 0 || segment.end <= begin || segment.begin >= begin + count) continue;
          const kernels::cuda::ExpertPiece& cut = pieces[std::size_t(piece++)];
          ASSERT_THAT((std::vector{cut.tile, cut.label, cut.begin, cut.end}),
                      testing::ElementsAre(tile, segment.label, std::max(begin, segment.begin),
                                           std::min(begin + count, segment.end)));
        }
        begin += count;
      }
    }
    ASSERT_EQ(tile_begin[std::size_t(c.experts)], tile);
    if (!input.labels.empty()) {
      ASSERT_EQ(piece_begin[std::size_t(tile)], piece);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ExpertPlan,
    testing::Values(Case{0, 8, 128, Routing::spread, Labelling::none, 1, 16},
                    Case{0, 8, 128, Routing::spread, Labelling::some, 1, 16},
                    Case{1, 8, 128, Routing::spread, Labelling::none, 1, 8},
                    Case{1, 1, 5, Routing::strange, Labelling::one, 1, 8},
                    Case{7, 3, 5, Routing::strange, Labelling::some, 3, 8},
                    Case{64, 8, 128, Routing::spread, Labelling::some, 4, 16},
                    Case{128, 8, 128, Routing::strange, Labelling::all_different, 128, 16},
                    Case{129, 8, 128, Routing::spread, Labelling::some, 512, 16},
                    Case{1000, 4, 5, Routing::one_expert, Labelling::none, 1, 32},
                    Case{1000, 4, 5, Routing::one_expert, Labelling::some, 40, 32},
                    Case{2048, 8, 512, Routing::strange, Labelling::some, 512, 128},
                    Case{2048, 8, 512, Routing::spread, Labelling::none, 1, 128},
                    Case{8192, 8, 128, Routing::spread, Labelling::one, 512, 128},
                    Case{8192, 8, 128, Routing::strange, Labelling::all_different, 1000, 128},
                    Case{8192, 8, 128, Routing::own_group, Labelling::all_different, 1000, 1},
                    Case{8192, 8, 512, Routing::own_group, Labelling::all_different, 512, 128}),
    name_of);

}  // namespace
}  // namespace motley::gpu_tests
