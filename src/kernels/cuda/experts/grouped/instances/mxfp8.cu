#include "kernels/cuda/experts/grouped/kernels.cuh"

namespace motley::kernels::cuda::grouped {

template std::span<const GroupedKernel> kernels_of<ExpertFormat::mxfp8, FactorType::none>();
template std::span<const GroupedKernel> kernels_of<ExpertFormat::mxfp8, FactorType::bf16>();

}  // namespace motley::kernels::cuda::grouped
