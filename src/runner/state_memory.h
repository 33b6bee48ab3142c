#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/step.h"
#include "tensor/buffer.h"
#include "tensor/device/device.h"

namespace motley::runner {

// What layers keep for each sequence, in slots: anchors and logs at addresses that never change.
// And places for snapshots, each the anchors of all layers and what their convolutions read before
// them. The caller decides who has a slot or a place. Copies are made in the order of the stream.
class StateMemory {
 public:
  StateMemory() = default;  // without slots
  static Result<StateMemory> create(tensor::Allocator& allocator,
                                    std::span<const model::StateShape> shapes, std::int64_t slots,
                                    std::int64_t places);

  // Over all layers.
  static std::int64_t slot_bytes(std::span<const model::StateShape> shapes);
  static std::int64_t snapshot_bytes(std::span<const model::StateShape> shapes);

  std::span<const ops::LayerStates> layers() const { return layers_; }
  std::int64_t slots() const { return slots_; }
  std::int64_t places() const { return places_; }
  // All of it.
  const tensor::Buffer& memory() const { return memory_; }

  // A sequence that goes on as two.
  Result<void> copy(std::int32_t from, std::int32_t to, tensor::Stream& stream) const;
  Result<void> save(std::int32_t slot, std::int32_t place, tensor::Stream& stream) const;
  // The slot's sequence stands at the snapshot's anchor then.
  Result<void> restore(std::int32_t place, std::int32_t slot, tensor::Stream& stream) const;

 private:
  // An array of one layer, [slots, bytes].
  struct Array {
    std::byte* at = nullptr;
    std::size_t bytes = 0;  // of a slot
    bool in_snapshots = false;
  };

  tensor::Buffer memory_;
  std::vector<ops::LayerStates> layers_;
  std::vector<Array> arrays_;
  std::byte* snapshots_ = nullptr;  // [places, snapshot_bytes]
  std::size_t snapshot_bytes_ = 0;
  std::int64_t slots_ = 0;
  std::int64_t places_ = 0;
};

}  // namespace motley::runner
