#include "kernels/cuda/attention/kernel.cuh"

namespace motley::kernels::cuda::tiles {

Instances widths_64() { return few_and_many<64, 64>(); }

}  // namespace motley::kernels::cuda::tiles
