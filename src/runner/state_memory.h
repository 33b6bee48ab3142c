#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/step.h"
#include "tensor/buffer.h"
#include "tensor/device/device.h"

namespace motley::runner {

// What layers keep for each sequence, in slots at addresses that never change. A slot has the
// arrays of all layers: first what a snapshot holds, the anchors and what convolutions read before
// them, then the logs. And places for snapshots, each a copy of a slot's first part, in the
// device's memory and in the host's. The caller decides who has a slot or a place. Copies are made
// in the order of the stream.
class StateMemory {
 public:
  struct Sizes {
    std::int64_t slots = 0;
    std::int64_t places = 0;
    std::int64_t host_places = 0;
  };

  StateMemory() = default;  // without slots
  static Result<StateMemory> create(tensor::Device& device,
                                    std::span<const model::StateShape> shapes, const Sizes& sizes);

  // Over all layers, with what aligns their arrays.
  static std::int64_t slot_bytes(std::span<const model::StateShape> shapes);
  static std::int64_t snapshot_bytes(std::span<const model::StateShape> shapes);

  std::span<const ops::LayerStates> layers() const { return layers_; }
  std::int64_t slots() const { return sizes_.slots; }
  std::int64_t places() const { return sizes_.places; }
  std::int64_t host_places() const { return sizes_.host_places; }
  // All of it on the device, and on the host.
  const tensor::Buffer& memory() const { return memory_; }
  const tensor::Buffer& host_memory() const { return host_; }

  // A sequence that goes on as two.
  Result<void> copy(std::int32_t from, std::int32_t to, tensor::Stream& stream) const;
  Result<void> save(std::int32_t slot, std::int32_t place, tensor::Stream& stream) const;
  // The slot's sequence stands at the snapshot's anchor then.
  Result<void> restore(std::int32_t place, std::int32_t slot, tensor::Stream& stream) const;
  // From a place to one in the host's memory, and from there to a slot.
  Result<void> offload(std::int32_t place, std::int32_t host_place, tensor::Stream& stream) const;
  Result<void> load(std::int32_t host_place, std::int32_t slot, tensor::Stream& stream) const;

 private:
  std::byte* slot_at(std::int32_t slot) const;
  std::byte* place_at(std::int32_t place) const;
  std::byte* host_place_at(std::int32_t place) const;

  tensor::Buffer memory_;  // [slots, slot_bytes_], then [places, snapshot_bytes_]
  tensor::Buffer host_;    // [host places, snapshot_bytes_]
  std::vector<ops::LayerStates> layers_;
  std::size_t slot_bytes_ = 0;
  std::size_t snapshot_bytes_ = 0;
  Sizes sizes_;
};

}  // namespace motley::runner
