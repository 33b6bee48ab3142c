#pragma once

#include <cstdint>
#include <optional>

#include "base/system/stream_handle.h"

namespace motley::tensor {
class Arena;
}
namespace motley::kernels {
struct ElementaryTable;
}
namespace motley::dist {
class Communicator;
}

namespace motley::ops {

// Every rank needs all rows in rank space of maps whose inputs are whole on it, and products with A
// are the same on all ranks: each may compute a part of the rows, and gather the others'.
struct SharedShrinks {
  // Of gate and up: all ranks have the same experts, and would compute the same rows.
  bool experts = false;
  bool dense = false;  // every rank has a part of every map
  // The rows (of experts: the (token, expert) pairs) from which they do; nothing: what was
  // measured.
  std::optional<std::int64_t> from_rows = std::nullopt;
};

// What every call needs: the device's kernels, the stream, and scratch that the call may use until
// it returns (on a GPU: until the stream has passed it).
struct Context {
  const kernels::ElementaryTable* kernels = nullptr;
  StreamHandle stream;
  tensor::Arena* scratch = nullptr;
  bool exact = true;  // --compute f32
  // A row's bits depend on its own sequence and mix only, not on the shape of the step. Always so
  // on the CPU.
  bool batch_invariant = false;
  dist::Communicator* ranks = nullptr;  // that compute the model together; null: one alone
  SharedShrinks shared_shrinks{};
};

}  // namespace motley::ops
