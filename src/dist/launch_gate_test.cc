#include "dist/launch_gate.h"

#include <atomic>
#include <barrier>
#include <latch>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace motley::dist {
namespace {

using Way = LaunchGate::Way;

TEST(LaunchGate, LaunchesGoOnTogether) {
  LaunchGate gate;
  std::barrier all_inside(3);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      const LaunchGate::Pass pass = gate.enter(Way::together);
      all_inside.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(LaunchGate, WhatMayWaitIsAlone) {
  LaunchGate gate;
  std::atomic<int> inside{0};
  std::atomic<int> alone{0};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 500; ++round) {
        const bool waits = (round + i) % 3 == 0;
        const LaunchGate::Pass pass = gate.enter(waits ? Way::alone : Way::together);
        const int others = inside++;
        if (waits) ++alone;
        if (waits ? others != 0 : alone != 0) ++wrong;
        std::this_thread::yield();
        if (waits) --alone;
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Launches that follow each other without a gap don't keep a load out.
TEST(LaunchGate, PassesAreGivenInOrder) {
  LaunchGate gate;
  std::latch begun(2);
  std::atomic<bool> loaded{false};
  std::vector<std::thread> launchers;
  for (int i = 0; i < 2; ++i) {
    launchers.emplace_back([&] {
      bool first = true;
      while (!loaded) {
        const LaunchGate::Pass pass = gate.enter(Way::together);
        if (std::exchange(first, false)) begun.count_down();
        std::this_thread::yield();
      }
    });
  }
  begun.wait();
  {
    const LaunchGate::Pass pass = gate.enter(Way::alone);
    loaded = true;
  }
  for (std::thread& launcher : launchers) launcher.join();
}

TEST(LaunchGate, WithoutAGateEverythingPasses) {
  const LaunchGate::Pass first = LaunchGate::enter(nullptr, Way::alone);
  const LaunchGate::Pass second = LaunchGate::enter(nullptr, Way::alone);
}

}  // namespace
}  // namespace motley::dist
