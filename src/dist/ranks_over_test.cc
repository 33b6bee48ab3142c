#include "dist/ranks_over.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::dist {
namespace {

TEST(RanksOver, HaveNames) {
  EXPECT_EQ(parse_ranks_over("auto").value(), RanksOver::automatic);
  EXPECT_EQ(parse_ranks_over("peers").value(), RanksOver::peers);
  EXPECT_EQ(parse_ranks_over("nccl").value(), RanksOver::nccl);
  const auto other = parse_ranks_over("mpi");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().message(),
            "ranks can't compute over 'mpi' (--ranks-over): use auto, peers or nccl");
}

TEST(RanksOver, ArePeersWhereAllGpusAreAndElseWhatWorks) {
  const RanksChoice peers = choose_ranks(RanksOver::automatic, "");
  EXPECT_EQ(peers.over, RanksOver::peers);
  EXPECT_EQ(peers.reason, "all GPUs address each other's memory");
  const RanksChoice apart = choose_ranks(RanksOver::automatic, "GPU 0 can't");
  EXPECT_EQ(apart.over, RanksOver::nccl);
  EXPECT_EQ(apart.reason, "GPU 0 can't");
}

TEST(RanksOver, AreWhatWasAskedFor) {
  EXPECT_EQ(choose_ranks(RanksOver::nccl, "").over, RanksOver::nccl);
  // Its error says why it can't be.
  EXPECT_EQ(choose_ranks(RanksOver::peers, "GPU 0 can't").over, RanksOver::peers);
  EXPECT_EQ(choose_ranks(RanksOver::nccl, "").reason, "--ranks-over nccl");
}

}  // namespace
}  // namespace motley::dist
