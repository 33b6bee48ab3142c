// Stands in for cuda/ in a build without CUDA.

#include "base/check.h"
#include "base/error.h"
#include "kernels/collectives.h"
#include "kernels/elementary.h"
#include "kernels/read_memory.h"
#include "kernels/staged_ranks.h"
#include "kernels/tuning/candidates.h"

namespace motley::kernels {

Result<std::shared_ptr<const ElementaryTable>> cuda_table(int, const Tuning*) {
  return Error(ErrorCode::unavailable, "this build has no CUDA", "--device cuda",
               "build again with nvcc on PATH, or use --device cpu");
}

Result<void> cuda_launches(const ElementaryTable&) { return {}; }
void log_cuda_launches(const ElementaryTable&, std::vector<std::string>*) {}

Result<cuda::Card> cuda::card_of(int) {
  return Error(ErrorCode::unavailable, "this build has no CUDA", "--device cuda",
               "build again with nvcc on PATH");
}

Result<void> cuda::check_tuning(const Tuning&) { return {}; }
std::string cuda::tiling_name(int) { return {}; }
std::span<const std::string_view> cuda::dense_candidates() { return {}; }
std::vector<Linear> cuda::join_products(std::span<const Linear> products) {
  return {products.begin(), products.end()};
}
bool cuda::can_run_dense(std::string_view, std::span<const Linear>, StreamHandle) { return false; }
void cuda::run_dense(std::string_view, std::span<const Linear>, StreamHandle) {
  MOTLEY_CHECK(false, "a build with CUDA");
}
std::optional<cuda::DenseSelection> cuda::describe_dense(const DenseQuestion&) { return {}; }

Result<std::unique_ptr<cuda::PeerMemory>> cuda::PeerMemory::create(const Options&) {
  return Error(ErrorCode::unavailable, "this build has no CUDA", "--device cuda",
               "build again with nvcc on PATH, or use --device cpu");
}
// Without such memory nothing calls these.
void cuda::sum_over_peers(const Peers&, const PeerSum&, StreamHandle) {}
bool cuda::sum_and_norm_fits(const PeerSumAndNorm&) { return false; }
void cuda::sum_and_norm_over_peers(const Peers&, const PeerSumAndNorm&, StreamHandle) {}
void cuda::maxima_over_peers(const Peers&, const PeerMaxima&, StreamHandle) {}
void cuda::scattered_sum_over_peers(const Peers&, const PeerScatteredSum&, StreamHandle) {}
void cuda::gather_over_peers(const Peers&, const PeerGather&, StreamHandle) {}
Result<std::unique_ptr<cuda::StagingMemory>> cuda::StagingMemory::create(const Options&) {
  return Error(ErrorCode::unavailable, "this build has no CUDA", "--device cuda",
               "build again with nvcc on PATH, or use --device cpu");
}
void cuda::stage_part(const StagedPart&, const CallMark&, StreamHandle) {}
void cuda::join_parts(const JoinedParts&, const CallMark&, StreamHandle) {}
void cuda::stage_columns(const StagedColumns&, int, const float*, std::int64_t, const CallMark&,
                         StreamHandle) {}
void cuda::unstage_columns(const StagedColumns&, float*, std::int64_t, const CallMark&,
                           StreamHandle) {}
void cuda::mark_call(const CallMark&, StreamHandle) {}
std::string cuda::why_not_peers(const std::vector<int>&) { return {}; }
bool cuda::is_recorded(StreamHandle) { return false; }
void cuda::row_squares(const RowSquares&, StreamHandle) {}
void cuda::scale_by_norm(const ScaleByNorm&, StreamHandle) {}
void cuda::shift_ids(const std::int32_t*, std::int32_t, std::int64_t, std::int32_t*, StreamHandle) {
}

void cuda::read_memory(const ReadMemory&, StreamHandle) {
  MOTLEY_CHECK(false, "a build with CUDA");
}

}  // namespace motley::kernels
