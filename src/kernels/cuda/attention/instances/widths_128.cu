#include "kernels/cuda/attention/kernel.cuh"

namespace motley::kernels::cuda::tiles {

template Instance few_instance<128, 128, 8>();
template Instance few_instance<128, 128, 16>();
template Instance few_instance<128, 128, 32>();
template Instance many_instance<128, 128, false>();
template Instance many_instance<128, 128, true>();

}  // namespace motley::kernels::cuda::tiles
