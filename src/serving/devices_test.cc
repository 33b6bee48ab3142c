#include "serving/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::serving {
namespace {

using testing::ElementsAre;

ComputeSettings on_gpus(int ranks, int replicas, std::vector<int> gpus = {}) {
  ComputeSettings settings;
  settings.ranks = ranks;
  settings.replicas = replicas;
  settings.gpus = std::move(gpus);
  return settings;
}

std::string refusal(const ComputeSettings& settings, int gpus_here) {
  const auto gpus = gpus_of_ranks(settings, gpus_here);
  return gpus.ok() ? "none" : gpus.error().message();
}

TEST(Devices, TheFirstGpusAreThoseOfAllRanksOfAllReplicas) {
  EXPECT_THAT(gpus_of_ranks(on_gpus(2, 1), 8).value(), ElementsAre(0, 1));
  EXPECT_THAT(gpus_of_ranks(on_gpus(2, 2), 4).value(), ElementsAre(0, 1, 2, 3));
}

TEST(Devices, NamedGpusStayAsTheyAre) {
  EXPECT_THAT(gpus_of_ranks(on_gpus(2, 1, {3, 1}), 4).value(), ElementsAre(3, 1));
  EXPECT_EQ(refusal(on_gpus(2, 1, {1, 4}), 4),
            "names GPU 4, and this host has 4, numbered from 0 (--devices): name those that are "
            "there");
}

TEST(Devices, MoreGpusThanThereAreAreRefusedWithBothNumbers) {
  EXPECT_EQ(refusal(on_gpus(2, 1), 1),
            "2 ranks take 2 GPUs, and this host has 1 (--tp): use fewer, or --device cpu");
  EXPECT_EQ(refusal(on_gpus(1, 3), 2),
            "3 replicas take 3 GPUs, and this host has 2 (--dp): use fewer, or --device cpu");
  EXPECT_EQ(
      refusal(on_gpus(4, 2), 4),
      "2 replicas of 4 ranks take 8 GPUs, and this host has 4 (--dp): use fewer, or --device cpu");
  ComputeSettings dealt = on_gpus(4, 1);
  dealt.expert_groups = 4;
  EXPECT_EQ(refusal(dealt, 2),
            "4 ranks take 4 GPUs, and this host has 2 (--ep): use fewer, or --device cpu");
}

// Whether or not this machine has a GPU.
TEST(Devices, ACpuTakesAnyNumberOfRanks) {
  ComputeSettings settings = on_gpus(16, 4);
  settings.device.kind = tensor::DeviceChoice::Kind::cpu;
  const ComputeSettings chosen = choose_devices(settings).value();
  EXPECT_EQ(chosen.device.kind, tensor::DeviceChoice::Kind::cpu);
  EXPECT_TRUE(chosen.gpus.empty());
}

TEST(Devices, AReplicaHasItsPartOfTheGpus) {
  const ComputeSettings second = settings_of_replica(on_gpus(2, 2, {4, 1, 3, 0}), 1);
  EXPECT_THAT(second.gpus, ElementsAre(3, 0));
  EXPECT_EQ(second.device.index, 3);
}

}  // namespace
}  // namespace motley::serving
