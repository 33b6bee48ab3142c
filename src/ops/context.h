#pragma once

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
};

}  // namespace motley::ops
