#include "runner/state_memory.h"

#include <algorithm>
#include <array>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runner/state_plan.h"
#include "tensor/device/cpu_device.h"

namespace motley::runner {
namespace {

using testing::Each;

constexpr std::array<model::StateShape, 3> shapes{
    model::StateShape{.key_heads = 2, .value_heads = 4, .key_width = 3, .value_width = 5},
    model::StateShape{},
    model::StateShape{.key_heads = 1,
                      .value_heads = 1,
                      .key_width = 4,
                      .value_width = 2,
                      .decay_by_key = true,
                      .channels = 7,
                      .taps = 4}};

constexpr std::int64_t aligned(std::int64_t numbers) { return (numbers + 63) / 64 * 64; }

class StateMemories : public testing::Test {
 protected:
  // Slot s of every array has numbers of 100 a + s, for arrays in order.
  void fill() {
    float array = 0;
    for_arrays([&](float* numbers, std::int64_t of_slot, bool) {
      for (std::int64_t slot = 0; slot < memory.slots(); ++slot)
        std::fill_n(numbers + slot * stride, of_slot, 100 * array + static_cast<float>(slot));
      ++array;
    });
  }
  template <class Visit>
  void for_arrays(const Visit& visit) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const model::StateShape& shape = shapes[i];
      const auto& [recurrence, convolution] = memory.layers()[i];
      EXPECT_EQ(recurrence.slot_stride, stride);
      EXPECT_EQ(convolution.slot_stride, stride);
      if (shape.key_heads > 0) {
        visit(recurrence.anchors, shape.value_heads * shape.key_width * shape.value_width, true);
        visit(static_cast<float*>(recurrence.keys), 32 * shape.key_heads * shape.key_width, false);
        visit(recurrence.updates, 32 * shape.value_heads * shape.value_width, false);
        visit(recurrence.decays, 32 * shape.value_heads * (shape.decay_by_key ? 4 : 1), false);
      }
      if (shape.channels > 0) {
        visit(static_cast<float*>(convolution.inputs), 16 * shape.channels, false);
        visit(static_cast<float*>(convolution.history), 3 * shape.channels, true);
      }
    }
  }
  // Whether each array's slot has the numbers of that one; of snapshots those in snapshots.
  void expect_slot(std::int64_t slot, std::int64_t of, std::int64_t rest) {
    float array = 0;
    for_arrays([&](float* numbers, std::int64_t of_slot, bool in_snapshots) {
      const float* const first = numbers + slot * stride;
      const std::vector<float> all(first, first + of_slot);
      EXPECT_THAT(all, Each(100 * array + static_cast<float>(in_snapshots ? of : rest)));
      ++array;
    });
  }

  tensor::CpuDevice device{{.threads = 1}};
  std::unique_ptr<tensor::Stream> stream = device.create_stream().value();
  StateMemory memory =
      StateMemory::create(device, shapes, {.slots = 3, .places = 2, .host_places = 2}).value();
  std::int64_t stride = StateMemory::slot_bytes(shapes) / 4;
};

TEST_F(StateMemories, GiveEachLayerWhatItKeeps) {
  const ops::LayerStates& none = memory.layers()[1];
  EXPECT_EQ(none.recurrence.anchors, nullptr);
  EXPECT_EQ(none.convolution.inputs, nullptr);
  EXPECT_EQ(memory.layers()[0].convolution.history, nullptr);
  const std::int64_t snapshot = aligned(4 * 3 * 5) + aligned(4 * 2) + aligned(3 * 7);
  EXPECT_EQ(StateMemory::snapshot_bytes(shapes), 4 * snapshot);
  EXPECT_EQ(StateMemory::slot_bytes(shapes),
            4 * (snapshot + aligned(32 * 6) + aligned(32 * 20) + aligned(32 * 4) +
                 2 * aligned(32 * 4) + aligned(32 * 2) + aligned(16 * 7)));
  EXPECT_EQ(static_cast<std::int64_t>(memory.memory().size()),
            3 * StateMemory::slot_bytes(shapes) + 2 * StateMemory::snapshot_bytes(shapes));
}

TEST_F(StateMemories, KeepKeysAndInputsInTheirTypes) {
  std::array<model::StateShape, 3> narrow = shapes;
  narrow[0].types.keys = DType::bf16;
  narrow[2].types.inputs = DType::bf16;
  const StateMemory halves = StateMemory::create(device, narrow, {.slots = 1}).value();
  EXPECT_EQ(halves.layers()[0].recurrence.key_type, DType::bf16);
  EXPECT_EQ(halves.layers()[2].recurrence.key_type, DType::f32);
  EXPECT_EQ(halves.layers()[0].recurrence.betas, nullptr);
  EXPECT_EQ(halves.layers()[2].convolution.type, DType::bf16);
  EXPECT_EQ(StateMemory::snapshot_bytes(shapes) - StateMemory::snapshot_bytes(narrow),
            4 * aligned(3 * 7) - 2 * 128);
  EXPECT_EQ(StateMemory::slot_bytes(shapes) - StateMemory::slot_bytes(narrow),
            4 * (aligned(32 * 6) - aligned(32 * 6 / 2) + aligned(16 * 7) - aligned(16 * 7 / 2)));
}

TEST_F(StateMemories, KeepBetasInTheLogWhereKernelsWantThem) {
  std::array<model::StateShape, 3> corrected = shapes;
  corrected[0].types.betas = true;
  const StateMemory memory_of_both = StateMemory::create(device, corrected, {.slots = 1}).value();
  const auto& [recurrence, convolution] = memory_of_both.layers()[0];
  EXPECT_EQ(recurrence.betas - recurrence.decays, aligned(32 * 4));
  EXPECT_EQ(StateMemory::snapshot_bytes(corrected), StateMemory::snapshot_bytes(shapes));
  EXPECT_EQ(StateMemory::slot_bytes(corrected) - StateMemory::slot_bytes(shapes),
            4 * aligned(32 * 4));
}

// Every array of every slot is aligned, and what snapshots hold is one run of memory.
TEST_F(StateMemories, HaveOneSlotAfterTheOther) {
  const std::byte* const begin = memory.memory().data();
  for_arrays([&](const float* numbers, std::int64_t of_slot, bool in_snapshots) {
    const auto offset = reinterpret_cast<const std::byte*>(numbers) - begin;
    EXPECT_EQ(offset % 256, 0);
    EXPECT_EQ(offset < StateMemory::snapshot_bytes(shapes), in_snapshots);
    EXPECT_LE(offset + 4 * of_slot, StateMemory::slot_bytes(shapes));
  });
  EXPECT_EQ(StateMemory::slot_bytes(shapes) % 256, 0);
}

TEST_F(StateMemories, CopyWholeSlots) {
  fill();
  memory.copy(0, 2, *stream).value();
  expect_slot(2, 0, 0);
  expect_slot(0, 0, 0);
  expect_slot(1, 1, 1);
}

TEST_F(StateMemories, KeepAnchorsAndHistoryInSnapshots) {
  fill();
  memory.save(1, 0, *stream).value();
  memory.save(2, 1, *stream).value();
  memory.restore(0, 0, *stream).value();
  expect_slot(0, 1, 0);
  memory.restore(1, 1, *stream).value();
  expect_slot(1, 2, 1);
  expect_slot(2, 2, 2);
}

TEST_F(StateMemories, KeepSnapshotsInTheHostsMemory) {
  fill();
  for (std::int32_t slot = 0; slot < 2; ++slot) {
    memory.save(slot, 1, *stream).value();
    memory.offload(1, slot, *stream).value();
  }
  memory.load(0, 2, *stream).value();
  expect_slot(2, 0, 2);
  memory.load(1, 2, *stream).value();
  expect_slot(2, 1, 2);
}

// A rank may have a part of no layer.
TEST(StateMemory, MayHaveNothingInItsSlots) {
  tensor::CpuDevice device{{.threads = 1}};
  const std::unique_ptr<tensor::Stream> stream = device.create_stream().value();
  const std::array<model::StateShape, 2> nothing{};
  const StateMemory memory =
      StateMemory::create(device, nothing, {.slots = 2, .places = 1, .host_places = 1}).value();
  memory.copy(0, 1, *stream).value();
  memory.save(1, 0, *stream).value();
  memory.restore(0, 1, *stream).value();
  memory.offload(0, 0, *stream).value();
  memory.load(0, 1, *stream).value();
}

TEST(StatePlans, GiveHalfToSlotsAndTheRestToSnapshots) {
  const StatePlan plan = plan_states(1000, 50, 20, 64);
  EXPECT_EQ(plan.slots, 10);
  EXPECT_EQ(plan.snapshots, 25);
  const StatePlan few = plan_states(1000, 50, 20, 4);
  EXPECT_EQ(few.slots, 4);
  EXPECT_EQ(few.snapshots, 40);
  const StatePlan little = plan_states(30, 50, 20, 4);
  EXPECT_EQ(little.slots, 1);
  EXPECT_EQ(little.snapshots, 0);
  EXPECT_EQ(plan_states(1000, 0, 0, 64).slots, 0) << "a model without states";
}

}  // namespace
}  // namespace motley::runner
