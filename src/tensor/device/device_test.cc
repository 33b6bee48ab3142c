#include "tensor/device/device.h"

#include <array>
#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/system/thread_pool.h"
#include "tensor/arena.h"
#include "tensor/device/cpu_device.h"
#include "tensor/device/scripted_device.h"

namespace motley::tensor {
namespace {

using testing::HasSubstr;
using Kind = DeviceChoice::Kind;

TEST(ParseDevice, ReadsEveryForm) {
  EXPECT_EQ(parse_device("auto")->kind, Kind::automatic);
  EXPECT_EQ(parse_device("cpu")->kind, Kind::cpu);
  EXPECT_EQ(parse_device("cuda")->index, 0);
  EXPECT_EQ(parse_device("cuda:3")->index, 3);
}

TEST(ParseDevice, RefusesAnythingElse) {
  for (const char* text : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999", "CPU"}) {
    const auto device = parse_device(text);
    ASSERT_FALSE(device.ok()) << text;
    EXPECT_EQ(exit_status(device.error().code()), 2);
    EXPECT_THAT(device.error().message(), HasSubstr("use auto, cpu, cuda or cuda:N"));
  }
}

TEST(OpenDevice, CpuAlwaysOpens) {
  const auto device = open_device({.kind = Kind::cpu}, {.threads = 1});
  ASSERT_TRUE(device.ok());
  EXPECT_THAT((*device)->description(), HasSubstr("CPU, 1 thread"));
  EXPECT_EQ(to_string((*device)->id()), "cpu");
}

TEST(OpenDevice, CudaOpensOrSaysWhatIsMissing) {
  const auto device = open_device({.kind = Kind::cuda});
  if (device.ok()) {
    EXPECT_EQ((*device)->id().kind, DeviceKind::cuda);
  } else {
    EXPECT_THAT(device.error().message(), HasSubstr("--device cpu"));
  }
}

TEST(CpuDevice, KnowsItsMemory) {
  const auto memory = CpuDevice({.threads = 2}).memory();
  ASSERT_TRUE(memory.ok());
  EXPECT_GT(memory->total, memory->available / 2);
  EXPECT_GT(memory->available, 0U);
}

TEST(CpuDevice, BuffersAreAligned) {
  CpuDevice device({.threads = 1});
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{1000}, std::size_t{3} << 20}) {
    const auto buffer = device.allocate(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % Allocator::alignment, 0U);
    EXPECT_EQ(buffer->size(), bytes);
  }
}

TEST(CpuDevice, RefusesMoreThanThereIs) {
  CpuDevice device({.threads = 1});
  const std::size_t limit = device.memory().value().total;
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX / 2, limit + 1}) {
    const auto buffer = device.allocate(bytes);
    ASSERT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.error().code(), ErrorCode::out_of_memory);
    EXPECT_THAT(buffer.error().message(), testing::ContainsRegex(", where .* leaves "));
  }
}

TEST(CpuDevice, EmptyBufferHasNoMemory) {
  CpuDevice device({.threads = 1});
  const auto buffer = device.allocate(0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->view(DType::f32, {0, 4}).elements(), 0);
}

TEST(CpuDevice, StreamCopiesFillsAndReachesItsPool) {
  CpuDevice device({.threads = 2});
  const auto stream = device.create_stream();
  ASSERT_TRUE(stream.ok());
  const Buffer from = *device.allocate(16);
  const Buffer to = *device.allocate(16);
  ASSERT_TRUE((*stream)->fill(from.data(), std::byte{7}, 16).ok());
  ASSERT_TRUE(copy_tensor(from.view(DType::u8, {16}), to.view(DType::u8, {16}), **stream).ok());
  EXPECT_EQ(to.view(DType::u8, {16}).data<std::uint8_t>()[15], 7);
  const auto event = (*stream)->record();
  ASSERT_TRUE(event.ok());
  EXPECT_TRUE(*(*event)->reached());
  EXPECT_EQ((*stream)->handle().native, &device.pool());
}

TEST(CpuDevice, EventsAreReachedAndPinnedMemoryIsItsOwn) {
  CpuDevice device({.threads = 1});
  const auto stream = device.create_stream().value();
  const auto event = device.create_event().value();
  EXPECT_TRUE(event->reached().value());
  ASSERT_TRUE(stream->record(*event).ok());
  ASSERT_TRUE(stream->wait(*event).ok());
  EXPECT_TRUE(event->synchronize().ok());
  EXPECT_EQ(device.pinned_memory().id(), device.id());
}

TEST(CpuDevice, SaysThatWorkCannotBeCaptured) {
  CpuDevice device({.threads = 1});
  const auto stream = device.create_stream().value();
  bool called = false;
  const auto graph = stream->capture([&]() -> Result<void> {
    called = true;
    return {};
  });
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.error().code(), ErrorCode::unsupported);
  EXPECT_THAT(graph.error().message(), HasSubstr("run it each time"));
  EXPECT_FALSE(called);
}

// What tests of other modules rely on.
TEST(ScriptedDevice, WorkIsLateInOrderAndBehindEvents) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    test::ScriptedDevice device(seed);
    const auto first = device.new_stream();
    const auto second = device.new_stream();
    const Buffer from = device.pinned_memory().allocate(3000).value();
    const Buffer to = device.allocate(3000).value();
    std::memset(from.data(), 1, 3000);
    std::memset(to.data(), 0, 3000);
    ASSERT_TRUE(first->copy(to.data(), from.data(), 3000).ok());
    EXPECT_EQ(to.data()[0], std::byte{0}) << "copied at once";
    const auto copied = first->record().value();
    ASSERT_TRUE(second->wait(*copied).ok());
    bool whole = false;
    second->call([&] { whole = to.data()[2999] == std::byte{1}; });
    EXPECT_FALSE(copied->reached().value());
    ASSERT_TRUE(second->synchronize().ok());
    EXPECT_TRUE(whole);
    EXPECT_TRUE(copied->reached().value());
  }
}

TEST(ScriptedDevice, GraphsRunWhatTheyTookDown) {
  test::ScriptedDevice device(1);
  const auto stream = device.new_stream();
  int runs = 0;
  const auto graph = stream
                         ->capture([&]() -> Result<void> {
                           stream->call([&] { ++runs; });
                           return {};
                         })
                         .value();
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_EQ(runs, 0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(graph->launch(*stream).ok());
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_EQ(runs, 3);
}

TEST(Buffer, MovesAndGivesBackOnce) {
  CpuDevice device({.threads = 1});
  Buffer first = *device.allocate(64);
  std::byte* const data = first.data();
  Buffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  Buffer third;
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
}

TEST(BufferDeathTest, ViewsStayInside) {
  CpuDevice device({.threads = 1});
  const Buffer buffer = *device.allocate(64);
  EXPECT_DEATH(buffer.view(DType::f32, {17}), "inside its buffer");
  EXPECT_DEATH(buffer.view(DType::f32, {16}, 4), "inside its buffer");
}

TEST(Arena, HandsOutAlignedTensorsSideBySide) {
  CpuDevice device({.threads = 1});
  Arena arena(*device.allocate(1024));
  const Tensor first = *arena.allocate(DType::f32, {3});
  const Tensor second = *arena.allocate(DType::u8, {5});
  EXPECT_EQ(second.bytes() - first.bytes(), 256);
  EXPECT_EQ(arena.used(), 261U);
}

TEST(Arena, RewindsToAMark) {
  CpuDevice device({.threads = 1});
  Arena arena(*device.allocate(1024));
  ASSERT_TRUE(arena.allocate(DType::u8, {100}).ok());
  const std::size_t mark = arena.mark();
  const Tensor gone = *arena.allocate(DType::u8, {500});
  arena.rewind(mark);
  const Tensor again = *arena.allocate(DType::u8, {500});
  EXPECT_EQ(gone.bytes(), again.bytes());
  EXPECT_EQ(arena.peak(), 756U);
}

TEST(Arena, SaysWhenItIsFull) {
  CpuDevice device({.threads = 1});
  Arena arena(*device.allocate(1000));
  ASSERT_TRUE(arena.allocate(DType::u8, {700}).ok());
  const auto refused = arena.allocate(DType::f32, {100});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::out_of_memory);
  // The last part still fits: a refused allocation takes nothing.
  EXPECT_TRUE(arena.allocate(DType::u8, {232}).ok());
}

#ifdef MOTLEY_DEBUG
TEST(Arena, DebugBuildsHandOutNaN) {
  CpuDevice device({.threads = 1});
  Arena arena(*device.allocate(1024));
  const Tensor tensor = *arena.allocate(DType::f32, {4});
  EXPECT_TRUE(std::isnan(tensor.data<float>()[3]));
}
#endif

}  // namespace
}  // namespace motley::tensor
