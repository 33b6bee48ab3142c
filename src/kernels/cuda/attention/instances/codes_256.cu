#include "kernels/cuda/attention/kernel.cuh"

namespace motley::kernels::cuda::tiles {

template Instance few_codes_instance<256, 256, 8>();
template Instance few_codes_instance<256, 256, 16>();
template Instance many_codes_instance<256, 256>();

}  // namespace motley::kernels::cuda::tiles
