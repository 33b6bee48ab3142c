#include "tensor/device/metered_device.h"

#include <optional>

#include <gtest/gtest.h>

namespace motley::tensor {
namespace {

TEST(MeteredDevice, CountsWhatIsTakenAndWhatIsHeld) {
  MeteredDevice device(open_device({.kind = DeviceChoice::Kind::cpu}, {.threads = 1}).value());
  std::optional<Buffer> first = device.allocate(1000).value();
  Buffer second = device.allocate(24).value();
  EXPECT_EQ(device.usage().allocations, 2);
  EXPECT_EQ(device.usage().bytes, 1024);
  first.reset();
  EXPECT_EQ(device.usage().allocations, 2);
  EXPECT_EQ(device.usage().bytes, 24);
  // Pinned memory is counted separately.
  const Buffer pinned = device.pinned_memory().allocate(8).value();
  EXPECT_EQ(device.usage().allocations, 2);
  EXPECT_EQ(device.pinned_usage().bytes, 8);
}

}  // namespace
}  // namespace motley::tensor
