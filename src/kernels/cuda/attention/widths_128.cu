#include "kernels/cuda/attention/kernel.cuh"

namespace motley::kernels::cuda::tiles {

Instances widths_128() { return few_and_many<128, 128>(); }

}  // namespace motley::kernels::cuda::tiles
