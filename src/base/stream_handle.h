#pragma once

namespace motley {

// Where queued work goes, as kernels see it: a cudaStream_t on a GPU, the ThreadPool on the CPU.
// Rooms above hold a tensor::Stream, which owns what this points to.
struct StreamHandle {
  void* native = nullptr;
};

}  // namespace motley
