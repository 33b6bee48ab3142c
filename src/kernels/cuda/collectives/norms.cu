// Sums over ranks with the norm that follows, and norms of rows that are cut over ranks. Compiled
// without fused multiply-add.
#include <algorithm>
#include <cstddef>
#include <string_view>

#include "base/check.h"
#include "kernels/cuda/collectives/prepare.h"
#include "kernels/cuda/collectives/two_shot.cuh"
#include "kernels/cuda/elementary/norm.cuh"

namespace motley::kernels::cuda {
namespace {

// A row that is added to a sum over ranks, and where the result and its norm go.
template <class Out>
struct NormedRow {
  const float* a;
  float* x;
  Out* out;
  std::int64_t width;  // 0: of a thread without a row

  __device__ NormedRow(const AddAndNorm& p, std::int64_t row, bool is_there)
      : a(static_cast<const float*>(p.add.a) + row * p.add.a_stride),
        x(static_cast<float*>(p.add.out) + row * p.add.out_stride),
        out(static_cast<Out*>(p.norm.out) + row * p.norm.out_stride),
        width(is_there ? p.add.width : 0) {}

  // `sum(at)` gives a vec4 of the sum over ranks. By all threads of a block.
  template <class Sum>
  __device__ void run(const AddAndNorm& p, const NormShare<true>& share, float* warp_sums,
                      const Sum& sum) const {
    share.template run<Out>(
        {p.add.width, p.norm.eps, p.norm.weight_in_f32}, warp_sums,
        [&](std::int64_t at) {
          const Vec4 right = sum(at);
          Vec4 all = load_vec4<true>(a, at, width);
#pragma unroll
          for (int i = 0; i < 4; ++i) all.at[i] += right.at[i];
          return all;
        },
        [&](std::int64_t at, const Vec4& vec4) { store_vec4<true>(x, at, width, vec4); },
        [&](std::int64_t at) { return load_vec4<true>(x, at, width); },
        [&](std::int64_t at, const Vec4& vec4) { store_vec4<true>(out, at, width, vec4); });
  }
};

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
  const NormedRow<Out> own_row(p, row, row < p.add.rows);
  const std::int64_t width = own_row.width;
  const float* const b = static_cast<const float*>(p.add.b) + row * p.add.b_stride;
  const std::int64_t first = row * (p.add.width / 4);
  const NormShare<true> share(p.norm.weight, width, team, thread);
  wait_for_previous_grid();
  PeerTurn turn(peers, PeerCall::sum);
  const auto own = [&](std::int64_t at) {
    return has_part ? as_it_crosses<Wire>(load_vec4<true>(b, at, width)) : nothing();
  };
  for (std::int64_t at = 4 * thread; at < width; at += 4 * team.threads)
    send_to_all<Wire>(peers, turn, first + at / 4, own(at));
  own_row.run(p, share, warp_sums, [&](std::int64_t at) {
    return sum_of_slots<Wire>(peers, turn, first + at / 4, own(at));
  });
  turn.finish();
}

// Of the numbers as they cross. Others write them while this kernel runs.
template <class Wire>
__device__ Vec4 staged_vec4(const uint4* staged, std::int64_t number) {
  if constexpr (sizeof(Wire) == 4) {
    const uint4 value = load_shared(staged + number);
    return {__uint_as_float(value.x), __uint_as_float(value.y), __uint_as_float(value.z),
            __uint_as_float(value.w)};
  } else {
    const uint2 value = __ldcg(reinterpret_cast<const uint2*>(staged) + number);
    return {low_of(value.x), high_of(value.x), low_of(value.y), high_of(value.y)};
  }
}

// The same for rows whose sums take two steps. A block has whole rows.
template <class Wire, class Out>
__global__ void __launch_bounds__(max_norm_threads, peer_blocks_per_sm)
    two_shot_and_norm(const __grid_constant__ Peers peers, const __grid_constant__ AddAndNorm p,
                      bool has_part, NormTeam team) {
  __shared__ float warp_sums[max_norm_threads / 32];
  begin_peer_call(peers);
  PeerTurn turn(peers, PeerCall::sum);
  constexpr std::int64_t size = Pack<Wire>::size;
  const std::int64_t width = p.add.width;
  const std::int64_t packs_of_row = width / size;
  const Slice rows = Slice{0, p.add.rows}.cut(blockIdx.x, gridDim.x);
  const auto* const b = static_cast<const float*>(p.add.b);
  uint4* const staged = turn.staging(peers.rank);
  sum_parts<Wire>(
      peers, turn, (p.add.rows + gridDim.x - 1) / gridDim.x * packs_of_row,
      {rows.begin * packs_of_row, rows.end * packs_of_row},
      [&](std::int64_t i) {
        return coded(has_part ? load_pack<Wire, true>(b, size * i, p.add.rows * width)
                              : nothing_packed<Wire>());
      },
      [&](std::int64_t i, const uint4& sum) { staged[i] = sum; });
  const int thread = static_cast<int>(threadIdx.x) % team.threads;
  const int place = static_cast<int>(threadIdx.x) / team.threads;
  for (std::int64_t first = rows.begin; first < rows.end; first += team.parts) {
    const std::int64_t row = first + place;
    const NormedRow<Out> own_row(p, row, row < rows.end);
    const NormShare<true> share(p.norm.weight, own_row.width, team, thread);
    own_row.run(p, share, warp_sums,
                [&](std::int64_t at) { return staged_vec4<Wire>(staged, (row * width + at) / 4); });
    __syncthreads();  // no warp still reads the sums of warps
  }
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
  constexpr std::string_view name = "sum_and_norm_over_peers";
  MOTLEY_TRY_VOID(load_kernel(name, sum_and_norm<Wire, float>));
  MOTLEY_TRY_VOID(load_kernel(name, sum_and_norm<Wire, bf16>));
  MOTLEY_TRY_VOID(load_kernel(name, two_shot_and_norm<Wire, float>));
  return load_kernel(name, two_shot_and_norm<Wire, bf16>);
}

bool takes_one_shot(const PeerSumAndNorm& p) {
  return p.rows.add.rows * p.rows.add.width * bytes_of(p.crosses) <= max_one_shot_bytes;
}

// Rows [begin, begin + count) of float32 rows.
AddAndNorm rows_of(AddAndNorm p, std::int64_t begin, std::int64_t count) {
  p.add.rows = p.norm.size.rows = count;
  p.add.a = static_cast<const float*>(p.add.a) + begin * p.add.a_stride;
  p.add.b = static_cast<const float*>(p.add.b) + begin * p.add.b_stride;
  p.add.out = static_cast<float*>(p.add.out) + begin * p.add.out_stride;
  p.norm.x = p.add.out;
  p.norm.out = static_cast<std::byte*>(p.norm.out) +
               begin * p.norm.out_stride * static_cast<std::int64_t>(bytes_of(p.norm.out_type));
  return p;
}

}  // namespace

Result<void> prepare_peer_norms() {
  MOTLEY_TRY_VOID(prepare<float>());
  return prepare<bf16>();
}

bool sum_and_norm_fits(const PeerSumAndNorm& p) {
  const Add& add = p.rows.add;
  const RmsNorm& norm = p.rows.norm;
  // What crosses in two steps is cut into packs, each of one row.
  const bool packed = add.b_stride == add.width && add.width * bytes_of(p.crosses) % 16 == 0;
  return (takes_one_shot(p) || packed) && add.width % 4 == 0 && add.b_bias == nullptr &&
         add.a_type == DType::f32 && add.b_type == DType::f32 && add.out_type == DType::f32 &&
         (norm.out_type == DType::bf16 || norm.out_type == DType::f32) &&
         vec4_aligned(add.a, DType::f32, add.a_stride) &&
         vec4_aligned(add.b, DType::f32, add.b_stride) &&
         vec4_aligned(add.out, DType::f32, add.out_stride) &&
         vec4_aligned(norm.weight, DType::f32, 0) &&
         vec4_aligned(norm.out, norm.out_type, norm.out_stride);
}

void sum_and_norm_over_peers(const Peers& peers, const PeerSumAndNorm& p, StreamHandle stream) {
  MOTLEY_CHECK(sum_and_norm_fits(p), "a sum that its norm is launched with");
  const Add& add = p.rows.add;
  if (add.rows <= 0 || add.width <= 0) return;
  const NormTeam team = norm_team(add.width);
  const auto shape_for = [](const NormTeam& own, std::int64_t rows, std::int64_t blocks) {
    const std::int64_t all = (rows + own.parts - 1) / own.parts;
    return LaunchShape{.grid = static_cast<unsigned>(std::min(all, blocks)),
                       .threads = static_cast<unsigned>(own.threads * own.parts)};
  };
  with_type(p.crosses, [&](auto wire) {
    with_type(p.rows.norm.out_type, [&](auto out) {
      using Wire = decltype(wire);
      using Out = decltype(out);
      if (takes_one_shot(p)) {
        launch("sum_and_norm_over_peers", sum_and_norm<Wire, Out>,
               shape_for(team, add.rows, add.rows), stream, peers, p.rows, p.has_part, team);
        return;
      }
      const NormTeam teams{.threads = team.threads, .parts = max_norm_threads / team.threads};
      // Blocks have equally many rows, so that all parts fit.
      const std::int64_t room =
          PeerLayout::staging_bytes / (add.width * static_cast<std::int64_t>(sizeof(Wire)));
      const std::int64_t at_once = room > peers.blocks ? room / peers.blocks * peers.blocks : room;
      for (std::int64_t begin = 0; begin < add.rows; begin += at_once) {
        const AddAndNorm piece = rows_of(p.rows, begin, std::min(at_once, add.rows - begin));
        launch("sum_and_norm_over_peers", two_shot_and_norm<Wire, Out>,
               shape_for(teams, piece.add.rows, peers.blocks), stream, peers, piece, p.has_part,
               teams);
      }
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
