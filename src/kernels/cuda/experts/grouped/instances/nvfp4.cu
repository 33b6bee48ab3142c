#include "kernels/cuda/experts/grouped/kernels.cuh"

namespace motley::kernels::cuda::grouped {

template std::span<const GroupedKernel> kernels_of<ExpertFormat::nvfp4, FactorType::none>();
template std::span<const GroupedKernel> kernels_of<ExpertFormat::nvfp4, FactorType::bf16>();

}  // namespace motley::kernels::cuda::grouped
