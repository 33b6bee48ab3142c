#include "tensor/device/device.h"

#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::tensor {
namespace {

class CudaDevice : public testing::Test {
 protected:
  CudaDevice() : device_(open_device({.kind = DeviceChoice::Kind::cuda}).value()) {}

  std::unique_ptr<Device> device_;
};

TEST_F(CudaDevice, SaysWhatItIs) {
  EXPECT_THAT(device_->description(), testing::HasSubstr("compute capability 9.0"));
  EXPECT_EQ(to_string(device_->id()), "cuda:0");
}

TEST_F(CudaDevice, CopiesThereAndBack) {
  constexpr std::int64_t count = 1'000'003;
  std::vector<std::int32_t> numbers(count);
  for (std::int64_t i = 0; i < count; ++i) numbers[std::size_t(i)] = std::int32_t(i * 7);
  std::vector<std::int32_t> back(count, -1);
  const auto host = [](auto& memory) {
    return Tensor(reinterpret_cast<std::byte*>(memory.data()), DType::i32,
                  {std::int64_t(memory.size())});
  };
  const Buffer buffer = device_->allocate(count * sizeof(std::int32_t)).value();
  const auto stream = device_->create_stream().value();
  ASSERT_TRUE(copy_tensor(host(numbers), buffer.view(DType::i32, {count}), *stream).ok());
  ASSERT_TRUE(copy_tensor(buffer.view(DType::i32, {count}), host(back), *stream).ok());
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_EQ(numbers, back);
}

TEST_F(CudaDevice, AnotherStreamWaitsForAnEvent) {
  constexpr std::size_t bytes = std::size_t{64} << 20;
  const Buffer buffer = device_->allocate(bytes).value();
  const auto writer = device_->create_stream().value();
  const auto reader = device_->create_stream().value();
  std::vector<std::uint8_t> back(bytes);
  for (const int value : {3, 200, 77}) {
    ASSERT_TRUE(writer->fill(buffer.data(), std::byte(value), bytes).ok());
    const auto written = writer->record().value();
    ASSERT_TRUE(reader->wait(*written).ok());
    ASSERT_TRUE(reader->copy(back.data(), buffer.data(), bytes).ok());
    ASSERT_TRUE(reader->synchronize().ok());
    EXPECT_TRUE(written->reached().value());
    EXPECT_EQ(back.front(), value);
    EXPECT_EQ(back.back(), value);
  }
}

TEST_F(CudaDevice, RunningOutOfMemoryIsAnOrdinaryError) {
  const std::uint64_t total = device_->memory().value().total;
  const auto refused = device_->allocate(total * 2);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::out_of_memory);
  // The device is as good as before.
  EXPECT_TRUE(device_->allocate(1 << 20).ok());
}

// Every call finds its own device, also on a thread that has never used it.
TEST_F(CudaDevice, WorksFromAnyThread) {
  const auto stream = device_->create_stream().value();
  const Buffer buffer = device_->allocate(64).value();
  std::vector<std::uint8_t> back(64);
  std::thread([&] {
    EXPECT_TRUE(stream->fill(buffer.data(), std::byte{9}, 64).ok());
    EXPECT_TRUE(stream->copy(back.data(), buffer.data(), 64).ok());
    EXPECT_TRUE(stream->record().value()->synchronize().ok());
  }).join();
  EXPECT_EQ(back.back(), 9);
}

TEST(OpenCudaDevice, RefusesAGpuThatIsNotThere) {
  const auto device = open_device({.kind = DeviceChoice::Kind::cuda, .index = 99});
  ASSERT_FALSE(device.ok());
  EXPECT_THAT(device.error().message(), testing::HasSubstr("there is no GPU 99"));
}

}  // namespace
}  // namespace motley::tensor
