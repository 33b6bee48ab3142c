#include "dist/launch_gate.h"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/test_waits.h"

namespace motley::dist {
namespace {

using Way = LaunchGate::Way;

TEST(LaunchGate, LaunchesGoOnTogether) {
  LaunchGate gate;
  test::Meeting all_inside(3);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      const LaunchGate::Pass pass = gate.enter(Way::together);
      all_inside.arrive_and_wait("all three threads are inside");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(gate.waiting(), 0);
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
        if (waits) --alone;
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// A thread that enters the gate when a test says so, and stays inside until it says so.
class Visitor {
 public:
  Visitor(LaunchGate& gate, Way way, std::vector<int>& entered, int number)
      : thread_([&gate, &entered, this, way, number] {
          const LaunchGate::Pass pass = gate.enter(way);
          entered.push_back(number);  // no two of these tests' visitors enter at once
          inside_.set();
          leave_.wait("the test lets the visitor leave");
        }) {}
  ~Visitor() {
    leave();
    thread_.join();
  }
  void wait_until_inside() { inside_.wait("the visitor is inside"); }
  bool is_inside() const { return inside_.has_happened(); }
  void leave() { leave_.set(); }

 private:
  test::Event inside_;
  test::Event leave_;
  std::thread thread_;  // last: it uses the above
};

// Launches that follow each other without a gap don't keep a load out, nor do loads keep a launch
// out.
TEST(LaunchGate, PassesAreGivenInOrder) {
  for (const Way first : {Way::together, Way::alone}) {
    const Way other = first == Way::together ? Way::alone : Way::together;
    LaunchGate gate;
    std::vector<int> entered;
    Visitor inside(gate, first, entered, 0);
    inside.wait_until_inside();
    Visitor second(gate, other, entered, 1);
    test::wait_for("the second is at the gate",
                   [&] { return gate.waiting() == 1 || second.is_inside(); });
    // Where launches go on together, a gate without an order would let it in.
    Visitor third(gate, first, entered, 2);
    test::wait_for("the third is at the gate",
                   [&] { return gate.waiting() == 2 || third.is_inside(); });
    EXPECT_FALSE(second.is_inside());
    EXPECT_FALSE(third.is_inside());
    inside.leave();
    second.wait_until_inside();
    EXPECT_EQ(gate.waiting(), 1);
    EXPECT_EQ(entered, (std::vector{0, 1}));
    second.leave();
    third.wait_until_inside();
    EXPECT_EQ(entered, (std::vector{0, 1, 2}));
  }
}

TEST(LaunchGate, WithoutAGateEverythingPasses) {
  LaunchGate gate;
  const LaunchGate::Pass inside = gate.enter(Way::alone);
  const LaunchGate::Pass first = LaunchGate::enter(nullptr, Way::alone);
  const LaunchGate::Pass second = LaunchGate::enter(nullptr, Way::alone);
  EXPECT_EQ(gate.waiting(), 0);
}

}  // namespace
}  // namespace motley::dist
