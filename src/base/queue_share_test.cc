#include "base/queue_share.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace motley {
namespace {

// Clients arrive one after the other, and each sends as many requests as it may: each gets its
// share, and together they stay within the bound.
TEST(QueueShare, NoClientTakesTheQueueFromAnother) {
  for (const std::int64_t places : {1, 2, 7, 1024}) {
    std::vector<std::int64_t> held;
    double most = 0;
    for (std::int64_t clients = 1; clients <= 60; ++clients) {
      held.push_back(0);
      std::int64_t waiting = 0;
      for (const std::int64_t each : held) waiting += each;
      const auto accepts = [&] {
        return has_place(
            {.places = places, .waiting = waiting, .own = held.back(), .clients = clients});
      };
      for (int sent = 0; sent < 1300 && accepts(); ++sent, ++waiting) ++held.back();
      EXPECT_GE(held.back(), std::max<std::int64_t>(1, places / clients)) << places;
      most += std::max(1.0, static_cast<double>(places) / static_cast<double>(clients));
      EXPECT_LE(static_cast<double>(waiting), most) << places;
    }
  }
}

TEST(QueueShare, AQueueOfNoPlacesHoldsNoRequest) {
  EXPECT_TRUE(has_place({.places = 0, .free = 2, .waiting = 1, .clients = 1}));
  EXPECT_FALSE(has_place({.places = 0, .free = 2, .waiting = 2, .clients = 1}));
}

}  // namespace
}  // namespace motley
