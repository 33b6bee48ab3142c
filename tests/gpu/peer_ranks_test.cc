#include "dist/peer_ranks.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::gpu_tests {
namespace {

using testing::HasSubstr;

TEST(PeerRanks, MoreRanksThanAGroupTakesAreRefused) {
  const auto group = dist::PeerRanks::create({.gpus = std::vector<int>(9, 0)});
  ASSERT_FALSE(group.ok());
  EXPECT_THAT(group.error().message(), HasSubstr("9 GPUs"));
}

}  // namespace
}  // namespace motley::gpu_tests
