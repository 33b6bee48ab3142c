#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "lora/pages/pool.h"
#include "lora/pages/test_pool.h"
#include "moe/backend.h"
#include "tensor/device/cpu_device.h"

namespace motley::moe {
namespace {

using testing::HasSubstr;

class Limits : public testing::Test {
 protected:
  // A mix of adapters of these ranks.
  lora::Mix mix(const std::vector<int>& ranks) {
    std::vector<lora::Mix::Part> parts;
    for (const int rank : ranks) {
      const auto adapter = lora::test::make_adapter(rank, 32, 16, next_++);
      parts.push_back({.adapter = pool_->load(cat("a", next_), adapter).value(), .scale = 1});
    }
    return lora::Mix::make(parts).value();
  }
  std::string refusal(const std::vector<int>& ranks) {
    const auto room = fits(mix(ranks), {.labels = 4, .terms = 2, .rank = 16, .rank_sum = 24});
    return room.ok() ? "" : room.error().message();
  }

 private:
  tensor::CpuDevice memory_{{.threads = 1}};
  std::unique_ptr<lora::Pool> pool_ =
      lora::Pool::create(static_cast<tensor::Allocator&>(memory_), {.bytes = 8 << 20}).value();
  std::uint32_t next_ = 0;
};

TEST_F(Limits, HaveRoomForTheBaseAndForMixesUpToTheBounds) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({16}), "");
  EXPECT_EQ(refusal({16, 8}), "");
  EXPECT_TRUE(fits(lora::Mix(), {}).ok());
}

TEST_F(Limits, RefuseWhatIsBeyondByTheAdaptersName) {
  EXPECT_THAT(refusal({17}), HasSubstr("rank 17, where there is room for 16 (adapter 'a"));
  EXPECT_THAT(refusal({16, 9}), HasSubstr("ranks of 25 together"));
  EXPECT_THAT(refusal({4, 4, 4}), HasSubstr("more adapters on one request than the 2"));
}

}  // namespace
}  // namespace motley::moe
