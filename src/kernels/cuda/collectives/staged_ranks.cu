// Parts of ranks that a library moves: as they are staged, and what they come to.
#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "kernels/cuda/collectives/peers.cuh"
#include "kernels/cuda/collectives/prepare.h"
#include "kernels/staged_ranks.h"

namespace motley::kernels::cuda {
namespace {

// For one thread of a kernel, behind the previous grid. The host reads what it writes.
__device__ void write_mark(const CallMark& mark) {
  if (mark.end == CallMark::End::none) return;
  std::uint32_t number = *mark.words.count;
  if (mark.end == CallMark::End::begin) *mark.words.count = ++number;
  std::uint32_t* const word =
      mark.end == CallMark::End::begin ? mark.words.begun : mark.words.ended;
  *const_cast<volatile std::uint32_t*>(word) =
      number * rank_calls + static_cast<std::uint32_t>(mark.call);
}

__global__ void write_mark_alone(CallMark mark) {
  launch_dependents();
  wait_for_previous_grid();
  write_mark(mark);
}

// `whole`: x is aligned, and its length a multiple of 4. What is staged always is.
template <class Wire, bool whole>
struct StageVec4 {
  StagedPart p;
  CallMark mark;
  __device__ void operator()(std::int64_t /*row*/, std::int64_t at) const {
    if (at == 0) write_mark(mark);
    const Vec4 without = p.of_maxima ? Vec4{} : nothing();
    const Vec4 part = p.has_part ? load_vec4<whole>(p.x, at, p.count) : without;
    store_vec4<true>(static_cast<Wire*>(p.to), at, p.count, part);
  }
};

template <class Wire, class Out, bool whole>
struct JoinVec4 {
  JoinedParts p;
  CallMark mark;
  __device__ void operator()(std::int64_t /*row*/, std::int64_t at) const {
    if (at == 0) write_mark(mark);
    Vec4 joined{};
#pragma unroll
    for (int rank = 0; rank < max_peers; ++rank) {
      if (rank >= p.ranks) break;
      const Vec4 part = load_vec4<whole>(static_cast<const Wire*>(p.parts[rank]), at, p.count);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float both = p.maxima ? fmaxf(joined.at[i], part.at[i]) : joined.at[i] + part.at[i];
        joined.at[i] = rank == 0 ? part.at[i] : both;
      }
    }
    store_vec4<whole>(static_cast<Out*>(p.out), at, p.count, as_it_crosses<Wire>(joined));
  }
};

constexpr unsigned column_threads = 256;

__global__ void __launch_bounds__(column_threads)
    stage_rows(StagedColumns p, int rank, const float* own, std::int64_t own_stride,
               CallMark mark) {
  launch_dependents();
  wait_for_previous_grid();
  const std::int64_t first = std::int64_t{blockIdx.x} * column_threads + threadIdx.x;
  if (first == 0) write_mark(mark);
  const std::int64_t width = p.begin[rank + 1] - p.begin[rank];
  const std::int64_t step = std::int64_t{gridDim.x} * column_threads;
  float* const staged = p.staged + rank * p.apart;
  for (std::int64_t i = first; i < p.rows * width; i += step)
    staged[i / width * p.widest + i % width] = own[i / width * own_stride + i % width];
}

__global__ void __launch_bounds__(column_threads)
    unstage_rows(StagedColumns p, float* out, std::int64_t out_stride, CallMark mark) {
  launch_dependents();
  wait_for_previous_grid();
  const std::int64_t first = std::int64_t{blockIdx.x} * column_threads + threadIdx.x;
  if (first == 0) write_mark(mark);
  const std::int64_t step = std::int64_t{gridDim.x} * column_threads;
  for (int rank = 0; rank < p.ranks; ++rank) {
    const std::int64_t width = p.begin[rank + 1] - p.begin[rank];
    const float* const staged = p.staged + rank * p.apart;
    float* const columns = out + p.begin[rank];
    for (std::int64_t i = first; i < p.rows * width; i += step)
      columns[i / width * out_stride + i % width] = staged[i / width * p.widest + i % width];
  }
}

unsigned column_blocks(std::int64_t numbers) {
  constexpr std::int64_t max_blocks = 1024;
  const std::int64_t blocks = (numbers + column_threads - 1) / column_threads;
  return static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, max_blocks));
}

template <class Wire, bool whole>
Result<void> prepare() {
  MOTLEY_TRY_VOID(load_kernel("stage_part", each_vec4<StageVec4<Wire, whole>>));
  MOTLEY_TRY_VOID(load_kernel("join_parts", each_vec4<JoinVec4<Wire, Wire, whole>>));
  return load_kernel("join_parts", each_vec4<JoinVec4<Wire, float, whole>>);
}

}  // namespace

Result<void> prepare_staged_ranks() {
  MOTLEY_TRY_VOID((prepare<float, true>()));
  MOTLEY_TRY_VOID((prepare<float, false>()));
  MOTLEY_TRY_VOID((prepare<bf16, true>()));
  MOTLEY_TRY_VOID((prepare<bf16, false>()));
  MOTLEY_TRY_VOID(load_kernel("stage_columns", stage_rows));
  MOTLEY_TRY_VOID(load_kernel("unstage_columns", unstage_rows));
  return load_kernel("mark_call", write_mark_alone);
}

void mark_call(const CallMark& mark, StreamHandle stream) {
  if (mark.end == CallMark::End::none) return;
  launch("mark_call", write_mark_alone, {.grid = 1, .threads = 1}, stream, mark);
}

void stage_part(const StagedPart& p, const CallMark& mark, StreamHandle stream) {
  if (p.count <= 0) return mark_call(mark, stream);
  MOTLEY_CHECK(p.crosses == DType::f32 || p.crosses == DType::bf16, "numbers cross in f32 or bf16");
  // Without a part x is not read.
  const bool whole = p.count % 4 == 0 && vec4_aligned(p.x, DType::f32, 0);
  with_type(p.crosses, [&](auto wire) {
    with_flag(whole, [&](auto flag) {
      for_each_vec4("stage_part", 1, p.count, stream,
                    StageVec4<decltype(wire), flag.value>{p, mark});
    });
  });
}

void join_parts(const JoinedParts& p, const CallMark& mark, StreamHandle stream) {
  MOTLEY_CHECK(p.ranks <= max_peers, "at most so many ranks");
  if (p.count <= 0) return mark_call(mark, stream);
  bool whole = p.count % 4 == 0 && vec4_aligned(p.out, p.out_type, 0);
  for (int rank = 0; rank < p.ranks; ++rank)
    whole = whole && vec4_aligned(p.parts[rank], p.crosses, 0);
  MOTLEY_CHECK(p.out_type == DType::f32 || p.out_type == p.crosses, "a type of the numbers");
  with_flag(whole, [&](auto flag) {
    const auto join = [&](auto body) { for_each_vec4("join_parts", 1, p.count, stream, body); };
    if (p.crosses == DType::f32) {
      join(JoinVec4<float, float, flag.value>{p, mark});
    } else if (p.out_type == DType::f32) {
      join(JoinVec4<bf16, float, flag.value>{p, mark});
    } else {
      join(JoinVec4<bf16, bf16, flag.value>{p, mark});
    }
  });
}

void stage_columns(const StagedColumns& p, int rank, const float* own, std::int64_t own_stride,
                   const CallMark& mark, StreamHandle stream) {
  launch("stage_columns", stage_rows,
         {.grid = column_blocks(p.rows * (p.begin[rank + 1] - p.begin[rank])),
          .threads = column_threads},
         stream, p, rank, own, own_stride, mark);
}

void unstage_columns(const StagedColumns& p, float* out, std::int64_t out_stride,
                     const CallMark& mark, StreamHandle stream) {
  if (out == nullptr) return mark_call(mark, stream);
  launch("unstage_columns", unstage_rows,
         {.grid = column_blocks(p.rows * p.widest), .threads = column_threads}, stream, p, out,
         out_stride, mark);
}

}  // namespace motley::kernels::cuda
