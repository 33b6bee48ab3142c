#pragma once

namespace motley {

// Where queued work goes, as kernels see it: a cudaStream_t on a GPU, the ThreadPool on the CPU.
// Modules above hold a tensor::Stream, which owns what this points to.
struct StreamHandle {
  void* native = nullptr;
  // What a GPU's kernels keep for their device: kernels::ElementaryTable::on() adds it.
  void* device = nullptr;
};

}  // namespace motley
