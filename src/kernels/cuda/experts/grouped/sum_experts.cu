#include "kernels/cuda/elementary/norm.cuh"
#include "kernels/cuda/elementary/rounded_rows.cuh"
#include "kernels/cuda/experts/grouped/combine.cuh"
#include "kernels/cuda/experts/grouped/sum_experts.h"
#include "kernels/cuda/primitives/exponential.cuh"

namespace motley::kernels::cuda::grouped {
namespace {

constexpr int sum_threads = 256;
constexpr int slots_ahead = 8;  // slots whose loads are in flight together
constexpr int max_slots = 64;   // of a token
constexpr int max_teams = 8;    // of a block

// One block per token; a thread has 8 columns at a time.
__global__ void __launch_bounds__(sum_threads) combine(LayerParams p) {
  launch_dependents();
  wait_for_previous_grid();
  const int routed = p.plan.expert_begin[p.experts];
  for (int column = static_cast<int>(threadIdx.x) * 8; column < p.hidden; column += sum_threads * 8)
    combine_chunk<slots_ahead>(p, p.plan.places, routed, static_cast<int>(blockIdx.x), column);
}

// The slots of a token: the place of each one's part of the sum, or -1, and its weight.
struct alignas(16) Slots {
  int places[max_slots];
  float weights[max_slots];
};

// One vec4 of the sum of combine_chunk().
__device__ Vec4 sum_of_slots(const LayerParams& p, const Slots& slots, std::uint32_t vec4) {
  const auto* const partial = reinterpret_cast<const uint2*>(p.partial);
  const auto vec4s = static_cast<std::uint32_t>(p.hidden / 4);
  Vec4 sum{};
#pragma unroll 1
  for (int first = 0; first < p.top_k; first += slots_ahead) {
    uint2 parts[slots_ahead];
#pragma unroll
    for (int j = 0; j < slots_ahead; ++j) {
      const int place = slots.places[first + j];
      parts[j] = place >= 0 ? __ldcs(partial + (static_cast<std::uint32_t>(place) * vec4s + vec4))
                            : uint2{0, 0};
    }
#pragma unroll
    for (int j = 0; j < slots_ahead; ++j) {
      const float weight = slots.weights[first + j];
      sum.at[0] = fmaf(weight, __uint_as_float(parts[j].x << 16), sum.at[0]);
      sum.at[1] = fmaf(weight, __uint_as_float(parts[j].x & 0xFFFF0000), sum.at[1]);
      sum.at[2] = fmaf(weight, __uint_as_float(parts[j].y << 16), sum.at[2]);
      sum.at[3] = fmaf(weight, __uint_as_float(parts[j].y & 0xFFFF0000), sum.at[3]);
    }
  }
  return sum;
}

// One team per token. `shared`: rows of a shared expert are added. `form`: what the norm's result
// is rounded to beside it.
template <int block_threads, bool shared, InputForm form>
__global__ void __launch_bounds__(block_threads, 1024 / block_threads)
    combine_and_norm(const __grid_constant__ LayerParams p,
                     const __grid_constant__ AfterExperts after, NormTeam team) {
  const AddAndNorm& next = after.rows;
  __shared__ float warp_sums[max_norm_threads / 32];
  __shared__ Slots all_slots[max_teams];
  launch_dependents();
  const int thread = static_cast<int>(threadIdx.x) % team.threads;
  const int own = static_cast<int>(threadIdx.x) / team.threads;
  const std::int64_t token = std::int64_t{blockIdx.x} * team.parts + own;
  const std::int64_t width = token < p.tokens ? next.add.width : 0;
  const auto* const a = static_cast<const float*>(next.add.a) + token * next.add.a_stride;
  auto* const x = static_cast<float*>(next.add.out) + token * next.add.out_stride;
  auto* const out = static_cast<bf16*>(next.norm.out) + token * next.norm.out_stride;
  const NormShare<true> share(next.norm.weight, width, team, thread);
  wait_for_previous_grid();
  Slots& slots = all_slots[own];
#pragma unroll 1
  for (int slot = thread; slot < max_slots; slot += team.threads) {
    const bool mine = token < p.tokens && slot < p.top_k;
    const int place = mine ? p.plan.places[token * p.top_k + slot] : p.pairs;
    const bool there = place < p.plan.expert_begin[p.experts];
    slots.places[slot] = there ? place : -1;
    slots.weights[slot] = there ? p.routing_weights[token * p.top_k + slot] : 0.0F;
  }
  __syncthreads();
  float shared_scale = 1;
  const float* shared_row = nullptr;
  if constexpr (shared) {
    const AddScaled& add = after.shared;
    shared_row = static_cast<const float*>(add.x) + token * add.x_stride;
    if (add.scale != nullptr && token < p.tokens)
      shared_scale = add.scale[token * add.scale_stride];
    if (add.sigmoid) shared_scale = sigmoid(shared_scale);
  }
  const auto results = share.run<bf16>(
      {next.add.width, next.norm.eps, next.norm.weight_in_f32}, warp_sums,
      [&](std::int64_t at) {
        Vec4 sum = load_vec4<true>(a, at, width);
        Vec4 experts = sum_of_slots(p, slots, static_cast<std::uint32_t>(at / 4));
        if constexpr (shared) {
          const Vec4 row = load_vec4<true>(shared_row, at, width);
#pragma unroll
          for (int i = 0; i < 4; ++i) experts.at[i] = experts.at[i] + row.at[i] * shared_scale;
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) sum.at[i] += experts.at[i];
        return sum;
      },
      [&](std::int64_t at, const Vec4& vec4) { store_vec4<true>(x, at, width, vec4); },
      [&](std::int64_t at) { return load_vec4<true>(x, at, width); },
      [&](std::int64_t at, const Vec4& vec4) { store_vec4<true>(out, at, width, vec4); });
  if constexpr (form != InputForm::none)
    RoundedRow<form>(next.norm.rounded, next.norm.size, token, width)
        .write(share, results, [&](std::int64_t at) { return load_vec4<true>(out, at, width); });
}

template <InputForm form>
auto combine_and_norm_for(const AfterExperts& next, const NormTeam& team) {
  const bool wide = team.threads > 256;
  if (next.shared.x == nullptr)
    return wide ? combine_and_norm<512, false, form> : combine_and_norm<256, false, form>;
  return wide ? combine_and_norm<512, true, form> : combine_and_norm<256, true, form>;
}

}  // namespace

void sum_experts(const LayerParams& p, StreamHandle stream) {
  launch("the sum over a token's experts", combine,
         {.grid = static_cast<unsigned>(p.tokens), .threads = sum_threads}, stream, p);
}

void sum_experts_and_norm(const LayerParams& p, const AfterExperts& next, StreamHandle stream) {
  const NormTeam team = norm_team(next.rows.add.width);
  const LaunchShape shape{.grid = static_cast<unsigned>((p.tokens + team.parts - 1) / team.parts),
                          .threads = static_cast<unsigned>(team.threads * team.parts)};
  const auto run = [&](auto* kernel) {
    launch("the sum over a token's experts and its norm", kernel, shape, stream, p, next, team);
  };
  const InputForm form = next.rows.norm.rounded.form;
  if (form == InputForm::none) return run(combine_and_norm_for<InputForm::none>(next, team));
  with_rounding(form, [&](auto to) { run(combine_and_norm_for<to.form>(next, team)); });
}

}  // namespace motley::kernels::cuda::grouped
