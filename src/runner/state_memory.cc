#include "runner/state_memory.h"

#include "base/check.h"
#include "kernels/recurrence.h"

namespace motley::runner {
namespace {

using model::StateShape;

// The numbers of a layer's arrays, for one slot.
struct Numbers {
  std::int64_t anchors = 0;
  std::int64_t keys = 0;
  std::int64_t updates = 0;
  std::int64_t decays = 0;
  std::int64_t inputs = 0;
  std::int64_t history = 0;

  std::int64_t snapshot() const { return anchors + history; }
  std::int64_t slot() const { return snapshot() + keys + updates + decays + inputs; }
};

Numbers numbers_of(const StateShape& shape) {
  constexpr std::int64_t rows = kernels::state_log_rows;
  Numbers numbers;
  if (shape.key_heads > 0) {
    numbers.anchors = shape.value_heads * shape.key_width * shape.value_width;
    numbers.keys = rows * shape.key_heads * shape.key_width;
    numbers.updates = rows * shape.value_heads * shape.value_width;
    numbers.decays = rows * shape.value_heads * (shape.decay_by_key ? shape.key_width : 1);
  }
  if (shape.channels > 0) {
    numbers.inputs = kernels::convolution_log_rows * shape.channels;
    numbers.history = (shape.taps - 1) * shape.channels;
  }
  return numbers;
}

std::int64_t bytes(std::int64_t numbers) {
  return numbers * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t aligned(std::int64_t bytes) {
  constexpr auto unit = static_cast<std::int64_t>(tensor::Allocator::alignment);
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

std::int64_t StateMemory::slot_bytes(std::span<const StateShape> shapes) {
  std::int64_t all = 0;
  for (const StateShape& shape : shapes) all += bytes(numbers_of(shape).slot());
  return all;
}

std::int64_t StateMemory::snapshot_bytes(std::span<const StateShape> shapes) {
  std::int64_t all = 0;
  for (const StateShape& shape : shapes) all += bytes(numbers_of(shape).snapshot());
  return all;
}

Result<StateMemory> StateMemory::create(tensor::Allocator& allocator,
                                        std::span<const StateShape> shapes, std::int64_t slots,
                                        std::int64_t places) {
  StateMemory memory;
  memory.slots_ = slots;
  memory.places_ = places;
  memory.snapshot_bytes_ = static_cast<std::size_t>(snapshot_bytes(shapes));
  std::int64_t total = 0;
  const auto count = [&](std::int64_t of_slot) { total += aligned(slots * bytes(of_slot)); };
  for (const StateShape& shape : shapes) {
    const Numbers n = numbers_of(shape);
    for (const std::int64_t each : {n.anchors, n.keys, n.updates, n.decays, n.inputs, n.history})
      count(each);
  }
  const std::int64_t of_slots = total;
  total += places * snapshot_bytes(shapes) + aligned(1);
  MOTLEY_TRY(memory.memory_, allocator.allocate(static_cast<std::size_t>(total)));
  std::byte* at = memory.memory_.data();
  memory.snapshots_ = at + of_slots;
  const auto place = [&](std::int64_t of_slot, bool in_snapshots) -> float* {
    if (of_slot == 0) return nullptr;
    std::byte* const own = at;
    at += aligned(slots * bytes(of_slot));
    memory.arrays_.push_back({.at = own,
                              .bytes = static_cast<std::size_t>(bytes(of_slot)),
                              .in_snapshots = in_snapshots});
    return reinterpret_cast<float*>(own);
  };
  for (const StateShape& shape : shapes) {
    const Numbers n = numbers_of(shape);
    ops::LayerStates layer;
    layer.recurrence = {.anchors = place(n.anchors, true),
                        .keys = place(n.keys, false),
                        .updates = place(n.updates, false),
                        .decays = place(n.decays, false)};
    layer.inputs = place(n.inputs, false);
    layer.history = place(n.history, true);
    memory.layers_.push_back(layer);
  }
  return memory;
}

Result<void> StateMemory::copy(std::int32_t from, std::int32_t to, tensor::Stream& stream) const {
  MOTLEY_CHECK(from != to && from < slots_ && to < slots_, "two slots");
  for (const Array& array : arrays_)
    MOTLEY_TRY_VOID(stream.copy(array.at + static_cast<std::size_t>(to) * array.bytes,
                                array.at + static_cast<std::size_t>(from) * array.bytes,
                                array.bytes));
  return {};
}

Result<void> StateMemory::save(std::int32_t slot, std::int32_t place,
                               tensor::Stream& stream) const {
  MOTLEY_CHECK(slot < slots_ && place < places_, "a slot and a place");
  std::byte* to = snapshots_ + static_cast<std::size_t>(place) * snapshot_bytes_;
  for (const Array& array : arrays_) {
    if (!array.in_snapshots) continue;
    MOTLEY_TRY_VOID(
        stream.copy(to, array.at + static_cast<std::size_t>(slot) * array.bytes, array.bytes));
    to += array.bytes;
  }
  return {};
}

Result<void> StateMemory::restore(std::int32_t place, std::int32_t slot,
                                  tensor::Stream& stream) const {
  MOTLEY_CHECK(slot < slots_ && place < places_, "a slot and a place");
  const std::byte* from = snapshots_ + static_cast<std::size_t>(place) * snapshot_bytes_;
  for (const Array& array : arrays_) {
    if (!array.in_snapshots) continue;
    MOTLEY_TRY_VOID(
        stream.copy(array.at + static_cast<std::size_t>(slot) * array.bytes, from, array.bytes));
    from += array.bytes;
  }
  return {};
}

}  // namespace motley::runner
