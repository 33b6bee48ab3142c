#include "runner/state_memory.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "kernels/recurrence.h"

namespace motley::runner {
namespace {

using model::StateShape;

// Where a layer's arrays begin in a slot, in bytes; nothing it does not keep.
struct Offsets {
  std::optional<std::int64_t> anchors, keys, updates, decays, betas, inputs, history;
};

struct SlotLayout {
  std::vector<Offsets> layers;
  std::int64_t snapshot = 0;  // bytes of a slot's first part
  std::int64_t slot = 0;
};

SlotLayout lay_out(std::span<const StateShape> shapes) {
  constexpr auto alignment = static_cast<std::int64_t>(tensor::Allocator::alignment);
  constexpr std::int64_t rows = kernels::state_log_rows;
  SlotLayout layout{.layers = std::vector<Offsets>(shapes.size())};
  std::int64_t end = 0;
  const auto place = [&end](std::int64_t numbers, DType type = DType::f32) {
    const std::int64_t bytes = *bytes_of(type, numbers);
    const std::int64_t at = end;
    end += (bytes + alignment - 1) / alignment * alignment;
    return at;
  };
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const StateShape& shape = shapes[i];
    Offsets& layer = layout.layers[i];
    if (shape.key_heads > 0)
      layer.anchors = place(shape.value_heads * shape.key_width * shape.value_width);
    if (shape.channels > 0)
      layer.history = place((shape.taps - 1) * shape.channels, shape.types.inputs);
  }
  layout.snapshot = end;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const StateShape& shape = shapes[i];
    Offsets& layer = layout.layers[i];
    if (shape.key_heads > 0) {
      layer.keys = place(rows * shape.key_heads * shape.key_width, shape.types.keys);
      layer.updates = place(rows * shape.value_heads * shape.value_width);
      layer.decays = place(rows * shape.value_heads * (shape.decay_by_key ? shape.key_width : 1));
      if (shape.types.betas) layer.betas = place(rows * shape.value_heads);
    }
    if (shape.channels > 0)
      layer.inputs = place(kernels::convolution_log_rows * shape.channels, shape.types.inputs);
  }
  layout.slot = end;
  return layout;
}

}  // namespace

std::int64_t StateMemory::slot_bytes(std::span<const StateShape> shapes) {
  return lay_out(shapes).slot;
}

std::int64_t StateMemory::snapshot_bytes(std::span<const StateShape> shapes) {
  return lay_out(shapes).snapshot;
}

Result<StateMemory> StateMemory::create(tensor::Device& device, std::span<const StateShape> shapes,
                                        const Sizes& sizes) {
  const SlotLayout layout = lay_out(shapes);
  StateMemory memory;
  memory.sizes_ = sizes;
  memory.slot_bytes_ = static_cast<std::size_t>(layout.slot);
  memory.snapshot_bytes_ = static_cast<std::size_t>(layout.snapshot);
  // A rank may have a part of no layer's state.
  const auto allocate = [](tensor::Allocator& allocator, std::int64_t bytes) {
    return allocator.allocate(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)));
  };
  MOTLEY_TRY(memory.memory_,
             allocate(device, sizes.slots * layout.slot + sizes.places * layout.snapshot));
  if (sizes.host_places > 0) {
    MOTLEY_TRY(memory.host_, allocate(device.pinned_memory(), sizes.host_places * layout.snapshot));
  }
  const auto at = [&](std::optional<std::int64_t> offset) {
    return offset ? reinterpret_cast<float*>(memory.memory_.data() + *offset) : nullptr;
  };
  const std::int64_t stride = layout.slot / static_cast<std::int64_t>(sizeof(float));
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Offsets& layer = layout.layers[i];
    memory.layers_.push_back({.recurrence = {.anchors = at(layer.anchors),
                                             .keys = at(layer.keys),
                                             .key_type = shapes[i].types.keys,
                                             .updates = at(layer.updates),
                                             .decays = at(layer.decays),
                                             .betas = at(layer.betas),
                                             .slot_stride = stride},
                              .convolution = {.inputs = at(layer.inputs),
                                              .history = at(layer.history),
                                              .type = shapes[i].types.inputs,
                                              .slot_stride = stride}});
  }
  return memory;
}

std::byte* StateMemory::slot_at(std::int32_t slot) const {
  MOTLEY_CHECK(slot >= 0 && slot < sizes_.slots, "a slot");
  return memory_.data() + static_cast<std::size_t>(slot) * slot_bytes_;
}

std::byte* StateMemory::place_at(std::int32_t place) const {
  MOTLEY_CHECK(place >= 0 && place < sizes_.places, "a place");
  return memory_.data() + static_cast<std::size_t>(sizes_.slots) * slot_bytes_ +
         static_cast<std::size_t>(place) * snapshot_bytes_;
}

std::byte* StateMemory::host_place_at(std::int32_t place) const {
  MOTLEY_CHECK(place >= 0 && place < sizes_.host_places, "a place in the host's memory");
  return host_.data() + static_cast<std::size_t>(place) * snapshot_bytes_;
}

Result<void> StateMemory::copy(std::int32_t from, std::int32_t to, tensor::Stream& stream) const {
  MOTLEY_CHECK(from != to, "two slots");
  return stream.copy(slot_at(to), slot_at(from), slot_bytes_);
}

Result<void> StateMemory::save(std::int32_t slot, std::int32_t place,
                               tensor::Stream& stream) const {
  return stream.copy(place_at(place), slot_at(slot), snapshot_bytes_);
}

Result<void> StateMemory::restore(std::int32_t place, std::int32_t slot,
                                  tensor::Stream& stream) const {
  return stream.copy(slot_at(slot), place_at(place), snapshot_bytes_);
}

Result<void> StateMemory::offload(std::int32_t place, std::int32_t host_place,
                                  tensor::Stream& stream) const {
  return stream.copy(host_place_at(host_place), place_at(place), snapshot_bytes_);
}

Result<void> StateMemory::load(std::int32_t host_place, std::int32_t slot,
                               tensor::Stream& stream) const {
  return stream.copy(slot_at(slot), host_place_at(host_place), snapshot_bytes_);
}

}  // namespace motley::runner
