// The grouped GEMM kernels as values: two lists for each weight format, with and without adapters.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/cuda/experts/grouped.h"
#include "kernels/kernel.h"

namespace motley::kernels::cuda::grouped {

struct GroupedKernel {
  KernelInfo info;
  GroupedTiles::Rows rows{};
  int max_width = 0;      // tokens of a tile
  int blocks_per_sm = 0;  // that its shared memory is divided for
  const void* function = nullptr;
  int threads = 0;
  int warpgroups = 0;         // of consumers
  int weight_bytes = 0;       // of a stage
  bool coded_inputs = false;  // token rows are codes
  bool rounds_h = false;      // to them, in gate_up's tiles, where blocks of 128 share a scale
  int max_sorted_inside = 0;  // pairs x terms of a label that one block can sort

  bool is_tall() const { return max_width > 16; }
  int token_bytes(int width) const;  // of a stage, at this width of tiles
};

template <ExpertFormat format, bool adapters>
std::span<const GroupedKernel> kernels_of();

std::span<const GroupedKernel> kernels_of(ExpertFormat format, bool adapters);

// Null: there is no kernel with these tiles for these weights and adapters.
const GroupedKernel* find_kernel(const GroupedTiles& tiles, const GroupedExperts& params);

// The kernels of one device: their attributes are set, and a multiprocessor holds as many blocks as
// they are made for.
class PreparedKernels {
 public:
  // For the current device.
  static Result<std::unique_ptr<PreparedKernels>> prepare();

  // Dynamic shared memory that a launch of the kernel may have.
  int dynamic_bytes(const GroupedKernel& kernel) const;

 private:
  struct Prepared {
    const GroupedKernel* kernel;
    int dynamic_bytes;
  };
  std::vector<Prepared> all_;
};

}  // namespace motley::kernels::cuda::grouped
