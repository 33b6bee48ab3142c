#pragma once

namespace motley {

// A queue of work as kernels see it: a cudaStream_t on a GPU, the ThreadPool on the CPU. Higher
// modules use tensor::Stream, which owns it.
struct StreamHandle {
  void* native = nullptr;
  // The state that a GPU's kernels keep for their device; set by kernels::ElementaryTable::on().
  void* device = nullptr;
};

}  // namespace motley
