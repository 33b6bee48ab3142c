// Sums over ranks with the norm that follows, and norms of rows that are cut over ranks. Compiled
// without fused multiply-add.
#include "base/check.h"
#include "kernels/cuda/collectives/peers.cuh"
#include "kernels/cuda/collectives/prepare.h"
#include "kernels/cuda/elementary/norm.cuh"

namespace motley::kernels::cuda {
namespace {

// A team of threads for each row, as in add_and_norm: with its bits.
template <class Wire, class Out>
__global__ void __launch_bounds__(max_norm_threads)
    sum_and_norm(const __grid_constant__ Peers peers, const __grid_constant__ AddAndNorm p,
                 bool has_part, NormTeam team) {
  __shared__ float warp_sums[max_norm_threads / 32];
  if (!peers.share_gpu) launch_dependents();
  const int thread = static_cast<int>(threadIdx.x) % team.threads;
  const std::int64_t row =
      std::int64_t{blockIdx.x} * team.parts + static_cast<int>(threadIdx.x) / team.threads;
  const std::int64_t width = row < p.add.rows ? p.add.width : 0;
  const float* const a = static_cast<const float*>(p.add.a) + row * p.add.a_stride;
  const float* const b = static_cast<const float*>(p.add.b) + row * p.add.b_stride;
  float* const x = static_cast<float*>(p.add.out) + row * p.add.out_stride;
  Out* const out = static_cast<Out*>(p.norm.out) + row * p.norm.out_stride;
  const std::int64_t first = row * (p.add.width / 4);
  NormShare<true> share(p.norm.weight, width, team, thread);
  wait_for_previous_grid();
  PeerTurn turn(peers, PeerCall::sum);
  const auto own = [&](std::int64_t at) {
    return has_part ? as_it_crosses<Wire>(load_vec4<true>(b, at, width)) : nothing();
  };
  for (std::int64_t at = 4 * thread; at < width; at += 4 * team.threads)
    send_to_all<Wire>(peers, turn, first + at / 4, own(at));
  share.template run<Out>(
      {p.add.width, p.norm.eps, p.norm.weight_in_f32}, warp_sums,
      [&](std::int64_t at) {
        const Vec4 right = sum_of_slots<Wire>(peers, turn, first + at / 4, own(at));
        Vec4 sum = load_vec4<true>(a, at, width);
#pragma unroll
        for (int i = 0; i < 4; ++i) sum.at[i] += right.at[i];
        return sum;
      },
      [&](std::int64_t at, const Vec4& vec4) { store_vec4<true>(x, at, width, vec4); },
      [&](std::int64_t at) { return load_vec4<true>(x, at, width); },
      [&](std::int64_t at, const Vec4& vec4) { store_vec4<true>(out, at, width, vec4); });
  turn.finish();
}

constexpr unsigned square_threads = 256;

// A block for each row.
__global__ void __launch_bounds__(square_threads) squares(RowSquares p) {
  __shared__ float warp_sums[square_threads / 32];
  launch_dependents();
  wait_for_previous_grid();
  const float* const x = p.x + std::int64_t{blockIdx.x} * p.x_stride;
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < p.width; i += square_threads) sum += x[i] * x[i];
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned i = 1; i < square_threads / 32; ++i) sum += warp_sums[i];
  p.sums[blockIdx.x] = sum;
}

struct Scale {
  ScaleByNorm p;

  __device__ void operator()(std::int64_t row, std::int64_t at) const {
    const RowSquares& rows = p.squares;
    const float factor = Squares::factor_of(rows.sums[row], p.whole_width, p.eps);
    float* const x = p.x + row * rows.x_stride;
    for (std::int64_t i = at; i < at + 4 && i < rows.width; ++i) x[i] *= factor * p.weight[i];
  }
};

struct Shift {
  const std::int32_t* ids;
  std::int32_t first;
  std::int64_t rows;
  std::int32_t* out;

  __device__ void operator()(std::int64_t, std::int64_t at) const {
    for (std::int64_t i = at; i < at + 4 && i < rows; ++i) out[i] = ids[i] - first;
  }
};

template <class Wire>
Result<void> prepare() {
  MOTLEY_TRY_VOID(load_kernel("sum_and_norm_over_peers", sum_and_norm<Wire, float>));
  return load_kernel("sum_and_norm_over_peers", sum_and_norm<Wire, bf16>);
}

}  // namespace

Result<void> prepare_peer_norms() {
  MOTLEY_TRY_VOID(prepare<float>());
  return prepare<bf16>();
}

bool sum_and_norm_fits(const PeerSumAndNorm& p) {
  const Add& add = p.rows.add;
  const RmsNorm& norm = p.rows.norm;
  const std::int64_t bytes = add.rows * add.width * bytes_of(p.crosses);
  return bytes <= max_one_shot_bytes && add.width % 4 == 0 && add.a_type == DType::f32 &&
         add.b_type == DType::f32 && add.out_type == DType::f32 &&
         (norm.out_type == DType::bf16 || norm.out_type == DType::f32) &&
         vec4_aligned(add.a, DType::f32, add.a_stride) &&
         vec4_aligned(add.b, DType::f32, add.b_stride) &&
         vec4_aligned(add.out, DType::f32, add.out_stride) &&
         vec4_aligned(norm.weight, DType::f32, 0) &&
         vec4_aligned(norm.out, norm.out_type, norm.out_stride);
}

void sum_and_norm_over_peers(const Peers& peers, const PeerSumAndNorm& p, StreamHandle stream) {
  MOTLEY_CHECK(sum_and_norm_fits(p), "a sum that fits one launch with its norm");
  const Add& add = p.rows.add;
  if (add.rows <= 0 || add.width <= 0) return;
  const NormTeam team = norm_team(add.width);
  const LaunchShape shape{.grid = static_cast<unsigned>((add.rows + team.parts - 1) / team.parts),
                          .threads = static_cast<unsigned>(team.threads * team.parts)};
  with_type(p.crosses, [&](auto wire) {
    with_type(p.rows.norm.out_type, [&](auto out) {
      launch("sum_and_norm_over_peers", sum_and_norm<decltype(wire), decltype(out)>, shape, stream,
             peers, p.rows, p.has_part, team);
    });
  });
}

void row_squares(const RowSquares& p, StreamHandle stream) {
  launch("row_squares", squares, {.grid = static_cast<unsigned>(p.rows), .threads = square_threads},
         stream, p);
}

void scale_by_norm(const ScaleByNorm& p, StreamHandle stream) {
  for_each_vec4("scale_by_norm", p.squares.rows, p.squares.width, stream, Scale{p});
}

void shift_ids(const std::int32_t* ids, std::int32_t first, std::int64_t rows, std::int32_t* out,
               StreamHandle stream) {
  for_each_vec4("shift_ids", 1, rows, stream, Shift{ids, first, rows, out});
}

}  // namespace motley::kernels::cuda
