#include "kernels/cuda/elementary.h"
#include "kernels/cuda/rope.cuh"

namespace motley::kernels::cuda {
namespace {

// A position below 2^24 is exact in float32 and the angle is rounded once, as on the CPU. Its
// cosine and sine are taken in float64, whose reduction is exact for every such angle, and rounded
// once: nothing is lost however large a position is.
__global__ void __launch_bounds__(256) fill_table(RopeTable p) {
  launch_dependents();
  wait_for_previous_grid();
  const std::int64_t index = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index >= p.rows * p.pairs) return;
  const std::int64_t row = index / p.pairs;
  const std::int64_t pair = index % p.pairs;
  const float angle = static_cast<float>(p.positions[row]) * p.inverse_frequencies[pair];
  double sine = 0;
  double cosine = 0;
  sincos(static_cast<double>(angle), &sine, &cosine);
  float* const cosines = p.cos_sin + row * 2 * p.pairs;
  cosines[pair] = static_cast<float>(cosine) * p.factor;
  cosines[p.pairs + pair] = static_cast<float>(sine) * p.factor;
}

// A "row" is a head of a row; a four is four pairs.
template <class X, bool whole>
struct TurnFour {
  Rope p;
  __device__ void operator()(std::int64_t index, std::int64_t at) const {
    const std::int64_t row = index / p.heads;
    X* const x = static_cast<X*>(p.x) + row * p.x_stride + index % p.heads * p.x_head_stride;
    write_pairs<whole>(
        x, p.pairs, p.interleaved,
        turned_pairs<whole>(x, p.cos_sin + row * 2 * p.pairs, p.pairs, p.interleaved, at));
  }
};

}  // namespace

void rope_table(const RopeTable& p, StreamHandle stream) {
  constexpr unsigned threads = 256;
  queue("rope_table", fill_table,
        {.grid = static_cast<unsigned>((p.rows * p.pairs + threads - 1) / threads),
         .threads = threads},
        stream, p);
}

void rope(const Rope& p, StreamHandle stream) {
  const bool whole = p.pairs % 4 == 0 && in_fours(p.x, p.x_type, p.x_stride) &&
                     p.x_head_stride % 4 == 0 && in_fours(p.cos_sin, DType::f32, 2 * p.pairs);
  with_type(p.x_type, [&](auto x) {
    with_flag(whole, [&](auto flag) {
      for_fours("rope", p.rows * p.heads, p.pairs, stream, TurnFour<decltype(x), flag.value>{p});
    });
  });
}

}  // namespace motley::kernels::cuda
