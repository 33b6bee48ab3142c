#include "kernels/cuda/attention/kernel.cuh"

namespace motley::kernels::cuda::tiles {

template Instance few_codes_instance<512, 512, 16>();
template Instance many_codes_instance<512, 512>();

}  // namespace motley::kernels::cuda::tiles
