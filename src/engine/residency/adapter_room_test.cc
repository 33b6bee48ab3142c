// AdapterRoom, which is arithmetic on numbers only.

#include "engine/residency/adapter_room.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace motley::engine {
namespace {

using TestRoom = AdapterRoom<int>;

// Ranked, with exactly the pages of these adapters committed.
TestRoom room_of(std::uint64_t all, const std::vector<TestRoom::InUse>& in_use) {
  TestRoom room;
  std::uint64_t committed = 0;
  for (const TestRoom::InUse& each : in_use) committed += each.pages;
  room.see({.all = all, .committed = committed});
  room.clear_in_use();
  for (const TestRoom::InUse& each : in_use) room.add(each);
  room.rank();
  return room;
}

std::vector<int> closed_for(TestRoom& room, const TestRoom::Demand& demand) {
  std::vector<int> closed;
  room.make_room(demand, [&](int adapter) { closed.push_back(adapter); });
  return closed;
}

TEST(AdapterRoom, AdaptersFitNextToWhatIsInUse) {
  EXPECT_TRUE(adapters_fit(3, 5, 8));
  EXPECT_FALSE(adapters_fit(4, 5, 8));
  EXPECT_FALSE(adapters_fit(0, 9, 8));  // more in use than there is: nothing fits
}

TEST(AdapterRoom, PromisesNoMorePagesThanThereAre) {
  TestRoom room;
  room.see({.all = 8, .committed = 3});
  EXPECT_TRUE(room.fits(5));
  EXPECT_FALSE(room.fits(6));
  room.promise(4);
  EXPECT_TRUE(room.fits(1));
  EXPECT_FALSE(room.fits(2));
}

TEST(AdapterRoom, PinnedAdaptersLeaveTheRest) {
  TestRoom room;
  room.see({.all = 8, .committed = 8, .pinned = 3});
  EXPECT_TRUE(room.can_fit(5)) << "what is in use now will go";
  EXPECT_FALSE(room.can_fit(6));
}

TEST(AdapterRoom, WhatRunsTheFewestSequencesCloses) {
  TestRoom room = room_of(6, {{.adapter = 1, .pages = 2, .begun = 5, .claims = 5},
                              {.adapter = 2, .pages = 2, .begun = 1, .claims = 9},
                              {.adapter = 3, .pages = 2, .begun = 2, .claims = 2}});
  EXPECT_EQ(room.price({.pages = 2}), 1);
  EXPECT_EQ(room.price({.pages = 3}), 2);
  EXPECT_EQ(room.price({.pages = 5}), 5);
  EXPECT_EQ(room.price({.pages = 7}), std::nullopt) << "more than there is";
  EXPECT_EQ(closed_for(room, {.pages = 3}), (std::vector{2, 3}));
}

TEST(AdapterRoom, FewerClaimsAndThenTheOlderDecide) {
  TestRoom room =
      room_of(3, {{.adapter = 1, .pages = 1, .begun = 1, .claims = 2, .load_order = 1},
                  {.adapter = 2, .pages = 1, .begun = 1, .claims = 1, .load_order = 9},
                  {.adapter = 3, .pages = 1, .begun = 1, .claims = 1, .load_order = 8}});
  EXPECT_EQ(closed_for(room, {.pages = 2}), (std::vector{3, 2}));
}

TEST(AdapterRoom, WhatWasClosingClosesFirst) {
  TestRoom room = room_of(2, {{.adapter = 1, .pages = 1, .begun = 1},
                              {.adapter = 2, .pages = 1, .was_closing = true, .begun = 7}});
  EXPECT_EQ(room.price({.pages = 1}), 7);
  EXPECT_EQ(closed_for(room, {.pages = 1}), std::vector{2});
}

TEST(AdapterRoom, NothingClosesForItself) {
  const std::vector own = {1};
  TestRoom room =
      room_of(4, {{.adapter = 1, .pages = 2, .begun = 1}, {.adapter = 2, .pages = 2, .begun = 3}});
  EXPECT_EQ(room.price({.pages = 2, .adapters = own}), 3);
  EXPECT_EQ(room.price({.pages = 3, .adapters = own}), std::nullopt);
  EXPECT_EQ(closed_for(room, {.pages = 2, .adapters = own}), std::vector{2});
}

TEST(AdapterRoom, WithRoomLeftNothingCloses) {
  TestRoom room = room_of(4, {{.adapter = 1, .pages = 2, .begun = 3}});
  EXPECT_EQ(room.price({.pages = 2}), 1);
  EXPECT_TRUE(closed_for(room, {.pages = 2}).empty());
  EXPECT_TRUE(room.making_room());
  EXPECT_FALSE(room.fits(1)) << "it is kept for these";
  room.stop();
  EXPECT_FALSE(room.making_room());
  EXPECT_TRUE(room.fits(2));
}

TEST(AdapterRoom, KeepsWhatItMadeForThoseBefore) {
  TestRoom room =
      room_of(2, {{.adapter = 1, .pages = 1, .begun = 1}, {.adapter = 2, .pages = 1, .begun = 2}});
  EXPECT_EQ(closed_for(room, {.pages = 1}), std::vector{1});
  EXPECT_EQ(room.price({.pages = 1}), 2) << "the first adapter's room is kept";
  EXPECT_EQ(closed_for(room, {.pages = 1}), std::vector{2});
  EXPECT_EQ(room.price({.pages = 1}), std::nullopt);
  EXPECT_FALSE(room.fits(1));
}

// No more adapters close than necessary, for any sizes.
TEST(AdapterRoom, ClosesNoMoreThanIsNeeded) {
  std::mt19937 random(1);
  const auto below = [&](int end) { return std::uniform_int_distribution(0, end - 1)(random); };
  for (int round = 0; round < 2000; ++round) {
    std::vector<TestRoom::InUse> in_use;
    std::uint64_t used = 0;
    for (int i = below(10); i > 0; --i) {
      const auto pages = std::uint64_t{1} + static_cast<std::uint64_t>(below(5));
      in_use.push_back({.adapter = i, .pages = pages, .begun = below(4), .claims = below(4) + 4});
      used += pages;
    }
    const std::uint64_t all = used + static_cast<std::uint64_t>(below(4));
    TestRoom room = room_of(all, in_use);
    for (int want = 0; want < 3; ++want) {
      const auto pages = std::uint64_t{1} + static_cast<std::uint64_t>(below(8));
      const auto price = room.price({.pages = pages});
      if (!price) continue;
      std::uint64_t free = all - used;
      std::uint64_t last = 0;
      std::int64_t max_begun = 1;
      for (const int closed : closed_for(room, {.pages = pages})) {
        const auto at = std::ranges::find(in_use, closed, &TestRoom::InUse::adapter);
        last = at->pages;
        free += last;
        used -= last;
        max_begun = std::max(max_begun, at->begun);
        in_use.erase(at);
      }
      EXPECT_GE(free, pages);
      EXPECT_LT(free - last, last > 0 ? pages : free + 1);
      EXPECT_EQ(*price, max_begun);
      used += pages;  // kept
    }
  }
}

}  // namespace
}  // namespace motley::engine
