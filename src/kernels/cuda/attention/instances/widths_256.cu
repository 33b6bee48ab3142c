#include "kernels/cuda/attention/kernel.cuh"

namespace motley::kernels::cuda::tiles {

template Instance few_instance<256, 256, 8>();
template Instance few_instance<256, 256, 16>();
template Instance few_instance<256, 256, 32>();
template Instance many_instance<256, 256, false>();
template Instance many_instance<256, 256, true>();

}  // namespace motley::kernels::cuda::tiles
