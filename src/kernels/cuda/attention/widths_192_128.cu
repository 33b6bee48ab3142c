#include "kernels/cuda/attention/kernel.cuh"

namespace motley::kernels::cuda::tiles {

Instances widths_192_128() { return few_and_many<192, 128>(); }

}  // namespace motley::kernels::cuda::tiles
