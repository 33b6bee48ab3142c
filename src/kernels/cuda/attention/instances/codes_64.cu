#include "kernels/cuda/attention/kernel.cuh"

namespace motley::kernels::cuda::tiles {

template Instance few_codes_instance<64, 64, 8>();
template Instance few_codes_instance<64, 64, 16>();
template Instance many_codes_instance<64, 64>();

}  // namespace motley::kernels::cuda::tiles
