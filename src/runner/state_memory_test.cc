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

class StateMemories : public testing::Test {
 protected:
  // Slot s of every array has numbers of 100 a + s, for arrays in order.
  void fill() {
    float array = 0;
    for_arrays([&](float* numbers, std::int64_t of_slot, bool) {
      for (std::int64_t slot = 0; slot < memory.slots(); ++slot)
        std::fill_n(numbers + slot * of_slot, of_slot, 100 * array + static_cast<float>(slot));
      ++array;
    });
  }
  template <class Visit>
  void for_arrays(const Visit& visit) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const model::StateShape& shape = shapes[i];
      const ops::LayerStates& layer = memory.layers()[i];
      if (shape.key_heads > 0) {
        visit(layer.recurrence.anchors, shape.value_heads * shape.key_width * shape.value_width,
              true);
        visit(layer.recurrence.keys, 32 * shape.key_heads * shape.key_width, false);
        visit(layer.recurrence.updates, 32 * shape.value_heads * shape.value_width, false);
        visit(layer.recurrence.decays, 32 * shape.value_heads * (shape.decay_by_key ? 4 : 1),
              false);
      }
      if (shape.channels > 0) {
        visit(layer.inputs, 16 * shape.channels, false);
        visit(layer.history, 3 * shape.channels, true);
      }
    }
  }
  // Whether each array's slot has the numbers of that one; of snapshots those in snapshots.
  void expect_slot(std::int64_t slot, std::int64_t of, std::int64_t rest) {
    float array = 0;
    for_arrays([&](float* numbers, std::int64_t of_slot, bool in_snapshots) {
      const std::vector<float> all(numbers + slot * of_slot, numbers + (slot + 1) * of_slot);
      EXPECT_THAT(all, Each(100 * array + static_cast<float>(in_snapshots ? of : rest)));
      ++array;
    });
  }

  tensor::CpuDevice device{{.threads = 1}};
  std::unique_ptr<tensor::Stream> stream = device.create_stream().value();
  StateMemory memory = StateMemory::create(device, shapes, 3, 2).value();
};

TEST_F(StateMemories, GiveEachLayerWhatItKeeps) {
  const ops::LayerStates& none = memory.layers()[1];
  EXPECT_EQ(none.recurrence.anchors, nullptr);
  EXPECT_EQ(none.inputs, nullptr);
  EXPECT_EQ(memory.layers()[0].history, nullptr);
  const std::int64_t anchors = 4 * 3 * 5 + 4 * 2;
  EXPECT_EQ(StateMemory::snapshot_bytes(shapes), 4 * (anchors + 3 * 7));
  EXPECT_EQ(StateMemory::slot_bytes(shapes),
            4 * (anchors + 3 * 7 + 32 * (6 + 20 + 4) + 32 * (4 + 2 + 4) + 16 * 7));
  EXPECT_GE(static_cast<std::int64_t>(memory.memory().size()),
            3 * StateMemory::slot_bytes(shapes) + 2 * StateMemory::snapshot_bytes(shapes));
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
