#include "base/check.h"
#include "kernels/cuda/elementary/router.cuh"
#include "kernels/cuda/elementary/router.h"
#include "kernels/cuda/primitives/device.h"
#include "kernels/cuda/primitives/launch.cuh"

namespace motley::kernels::cuda {
namespace {

constexpr int rows_per_block = 4;  // a warp each

__global__ void __launch_bounds__(rows_per_block* routing::lanes)
    route_rows(RouteTokens p, int row_words) {
  extern __shared__ std::uint32_t shared[];
  const int lane = static_cast<int>(threadIdx.x) % routing::lanes;
  const int warp = static_cast<int>(threadIdx.x) / routing::lanes;
  const std::int64_t token = std::int64_t{blockIdx.x} * rows_per_block + warp;
  launch_dependents();
  wait_for_previous_grid();
  if (token >= p.tokens) return;
  std::int32_t* const ids = p.ids + token * p.experts_per_token;
  float* const weights = p.weights + token * p.experts_per_token;
  if (!routing::is_live(p, token))
    return routing::choose_none(p, ids, weights, lane, routing::lanes);
  routing::route_row(p, p.logits + token * p.experts, shared + warp * row_words, ids, weights,
                     lane);
}

}  // namespace

void check_routing(const RouteTokens& params) {
  MOTLEY_CHECK(params.experts >= 1 && params.experts <= max_routed_experts, "experts");
  MOTLEY_CHECK(params.experts_per_token >= 1 && params.experts_per_token <= params.experts &&
                   params.experts_per_token <= max_routed_choices,
               "choices");
  MOTLEY_CHECK(params.groups >= 1 && params.experts % params.groups == 0 &&
                   params.kept_groups >= 1 && params.kept_groups <= params.groups,
               "groups");
}

void route(const RouteTokens& params, StreamHandle stream) {
  check_routing(params);
  const std::size_t row_bytes = routing::row_bytes(params);
  const LaunchShape shape{
      .grid = static_cast<unsigned>((params.tokens + rows_per_block - 1) / rows_per_block),
      .threads = rows_per_block * routing::lanes,
      .shared_bytes = rows_per_block * row_bytes};
  launch("route", route_rows, shape, stream, params,
         static_cast<int>(row_bytes / sizeof(std::uint32_t)));
}

}  // namespace motley::kernels::cuda
