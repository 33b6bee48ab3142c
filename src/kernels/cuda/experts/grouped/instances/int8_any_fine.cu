#include "kernels/cuda/experts/grouped/kernels.cuh"

namespace motley::kernels::cuda::grouped {

template std::span<const GroupedKernel> kernels_of<ExpertFormat::int8_any_fine, FactorType::none>();
template std::span<const GroupedKernel> kernels_of<ExpertFormat::int8_any_fine, FactorType::bf16>();

}  // namespace motley::kernels::cuda::grouped
