#include "kernels/cuda/attention/kernel.cuh"

namespace motley::kernels::cuda::tiles {

template Instance few_codes_instance<128, 128, 8>();
template Instance few_codes_instance<128, 128, 16>();
template Instance many_codes_instance<128, 128>();

}  // namespace motley::kernels::cuda::tiles
