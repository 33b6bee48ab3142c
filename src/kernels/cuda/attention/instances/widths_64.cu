#include "kernels/cuda/attention/kernel.cuh"

namespace motley::kernels::cuda::tiles {

template Instance few_instance<64, 64, 8>();
template Instance few_instance<64, 64, 16>();
template Instance few_instance<64, 64, 32>();
template Instance many_instance<64, 64, false>();
template Instance many_instance<64, 64, true>();

}  // namespace motley::kernels::cuda::tiles
