#include "base/check.h"
#include "kernels/cuda/elementary/elementary.h"
#include "kernels/cuda/elementary/heads.cuh"
#include "kernels/cuda/elementary/norm.cuh"
#include "kernels/cuda/elementary/rope.cuh"

namespace motley::kernels::cuda {
namespace {

// The first blocks process latents, one team per row; the others process queries, one vec4 per
// thread.
struct Cut {
  NormTeam team;
  unsigned latent_blocks = 0;
  unsigned vec4s = 0;  // written for each head of q
  unsigned heads_a_block = 0;
};

template <bool whole, class Page>
__device__ void prepare_latents(const PrepareLatent& p, const NormTeam& team) {
  __shared__ float warp_sums[max_norm_threads / 32];
  const int thread = static_cast<int>(threadIdx.x) % team.threads;
  const std::int64_t index =
      std::int64_t{blockIdx.x} * team.parts + static_cast<int>(threadIdx.x) / team.threads;
  // Teams without a row still take part in the barrier.
  const bool mine = index < p.rows;
  const std::int64_t row = p.first_row + (mine ? index : 0);
  const std::int64_t latent = mine ? p.latent : 0;
  const NormShare<whole> share(p.norm_weight, latent, team, thread);
  // Block tables were written before the step began.
  const PagePlace place = place_in_pages(p.sequences, p.table, static_cast<int>(row));
  const bool stored = mine && place.stored();
  Page* const page = static_cast<Page*>(p.pages.data) + (stored ? place.in(p.pages) : 0);
  wait_for_previous_grid();
  const float* const kv = p.kv + row * p.kv_stride;
  for (std::int64_t at = 4 * thread; stored && at < p.pairs; at += 4 * team.threads)
    write_pairs<whole>(page + p.latent, p.pairs, p.interleaved,
                       rotated_pairs<whole>(kv + p.latent, p.cos_sin + row * 2 * p.pairs, p.pairs,
                                            p.interleaved, at));
  const auto read = [&](std::int64_t at) { return load_vec4<whole>(kv, at, latent); };
  share.template run<float>(
      {p.latent, p.eps, p.weight_in_f32}, warp_sums, read, [](std::int64_t, const Vec4&) {}, read,
      [&](std::int64_t at, const Vec4& vec4) {
        if (stored) store_vec4<whole>(page, at, latent, vec4);
      });
}

// The same where the latent is stored as codes. Normed rows stand in shared memory until their
// largest number is known.
template <bool whole>
__device__ void prepare_coded_latents(const PrepareLatent& p, const NormTeam& team) {
  extern __shared__ float4 normed_rows[];
  __shared__ float warp_sums[max_norm_threads / 32];
  __shared__ std::uint32_t warp_largest[max_norm_threads / 32];
  const int thread = static_cast<int>(threadIdx.x) % team.threads;
  const int own_team = static_cast<int>(threadIdx.x) / team.threads;
  const std::int64_t index = std::int64_t{blockIdx.x} * team.parts + own_team;
  const bool mine = index < p.rows;
  const std::int64_t row = p.first_row + (mine ? index : 0);
  const std::int64_t latent = mine ? p.latent : 0;
  const NormShare<whole> share(p.norm_weight, latent, team, thread);
  const PagePlace place = place_in_pages(p.sequences, p.table, static_cast<int>(row));
  const bool stored = mine && place.stored();
  wait_for_previous_grid();
  const float* const kv = p.kv + row * p.kv_stride;
  bf16* const tail = static_cast<bf16*>(p.tail.pages.data) + (stored ? place.in(p.tail.pages) : 0);
  for (std::int64_t at = 4 * thread; stored && at < p.pairs; at += 4 * team.threads)
    write_pairs<whole>(tail, p.pairs, p.interleaved,
                       rotated_pairs<whole>(kv + p.latent, p.cos_sin + row * 2 * p.pairs, p.pairs,
                                            p.interleaved, at));
  auto* const held = reinterpret_cast<float*>(normed_rows) + own_team * ((p.latent + 3) / 4 * 4);
  const auto read = [&](std::int64_t at) { return load_vec4<whole>(kv, at, latent); };
  std::uint32_t largest = 0;
  share.template run<float>(
      {p.latent, p.eps, p.weight_in_f32}, warp_sums, read, [](std::int64_t, const Vec4&) {}, read,
      [&](std::int64_t at, const Vec4& vec4) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (at + i < latent) largest = kv_largest(largest, vec4.at[i]);
        store_vec4<true>(held, at, latent, vec4);
      });
  largest = __reduce_max_sync(0xFFFFFFFFU, largest);
  if (threadIdx.x % 32 == 0) warp_largest[threadIdx.x / 32] = largest;
  __syncthreads();
  if (!stored) return;
  const int warps = team.threads / 32;
  for (int i = 0; i < warps; ++i) largest = max(largest, warp_largest[own_team * warps + i]);
  const CodeScale scale(p.pages, largest);
  auto* const codes = static_cast<std::uint8_t*>(p.pages.data) + place.in(p.pages);
  for (std::int64_t at = 4 * thread; at < latent; at += 4 * team.threads) {
    const Vec4 vec4 = load_vec4<true>(held, at, latent);
    if constexpr (whole) {
      *reinterpret_cast<std::uint32_t*>(codes + at) = scale.codes(vec4);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (at + i < latent) codes[at + i] = scale.code(vec4.at[i]);
    }
  }
  if (thread == 0) *place.exponent(p.pages, p.table, 0) = scale.exponent;
}

// Stands for codes as the type of pages.
struct CodePage {};

// `rounds` vec4s of one column, of heads that are heads_a_block apart; their loads are in flight
// together.
template <bool whole, class Out, int rounds>
__device__ void prepare_queries(const PrepareLatent& p, const Cut& cut) {
  wait_for_previous_grid();
  const auto heads = static_cast<unsigned>(p.heads);
  const auto end = static_cast<unsigned>(p.rows) * heads;
  const unsigned own = threadIdx.x / cut.vec4s;
  const unsigned first = (blockIdx.x - cut.latent_blocks) * cut.heads_a_block * rounds + own;
  const std::int64_t at = p.out_from + 4 * (threadIdx.x % cut.vec4s);
  const std::int64_t kept = p.width - 2 * p.pairs;
  if (own >= cut.heads_a_block) return;
  const float* from[rounds];
  Vec4 values[rounds]{};
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    const unsigned index = min(first + i * cut.heads_a_block, end - 1);
    from[i] = p.q + (p.first_row + index / heads) * p.q_stride + index % heads * p.q_head_stride;
    if constexpr (whole) values[i] = load_vec4<true>(from[i], at, p.width);
  }
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    const unsigned index = first + i * cut.heads_a_block;
    if (index >= end) return;
    const std::int64_t row = p.first_row + index / heads;
    Out* const to = static_cast<Out*>(p.out) + row * p.out_stride +
                    index % heads * p.out_head_stride - p.out_from;
    const float* const cosines = p.cos_sin + row * 2 * p.pairs;
    if constexpr (whole) {
      if (at >= kept)
        values[i] =
            rotated_vec4(from[i] + kept, cosines, p.pairs, p.interleaved, at - kept, values[i]);
      store_vec4<true>(to, at, p.width, values[i]);
    } else {
      for (std::int64_t j = at; j < min(at + 4, p.width); ++j)
        to[j] = narrow<Out>(
            j < kept ? from[i][j]
                     : rotated_number(from[i] + kept, cosines, p.pairs, p.interleaved, j - kept));
    }
  }
}

template <bool whole, class Page, class Out, int rounds>
__global__ void __launch_bounds__(max_norm_threads)
    prepare_rows(const __grid_constant__ PrepareLatent p, Cut cut) {
  launch_dependents();
  if (blockIdx.x < cut.latent_blocks) {
    if constexpr (std::is_same_v<Page, CodePage>) {
      prepare_coded_latents<whole>(p, cut.team);
    } else {
      prepare_latents<whole, Page>(p, cut.team);
    }
  } else {
    prepare_queries<whole, Out, rounds>(p, cut);
  }
}

bool in_whole_vec4(const PrepareLatent& p) {
  const Pages& pages = p.pages;
  const Pages& tail = p.tail.pages;
  const bool tails = p.tail.width == 0 || (vec4_aligned(tail.data, tail.type, tail.page_stride) &&
                                           tail.token_stride % 4 == 0);
  return tails && p.latent % 4 == 0 && p.pairs % 4 == 0 && p.width % 4 == 0 &&
         p.out_from % 4 == 0 && vec4_aligned(p.kv, DType::f32, p.kv_stride) &&
         vec4_aligned(p.norm_weight, DType::f32, 0) && vec4_aligned(p.cos_sin, DType::f32, 0) &&
         vec4_aligned(p.q, DType::f32, p.q_stride) && p.q_head_stride % 4 == 0 &&
         vec4_aligned(p.out, p.out_type, p.out_stride) && p.out_head_stride % 4 == 0 &&
         vec4_aligned(pages.data, pages.type, pages.page_stride) && pages.token_stride % 4 == 0;
}

}  // namespace

void prepare_latent(const PrepareLatent& p, StreamHandle stream) {
  if (p.rows <= 0) return;
  Cut cut;
  cut.team = norm_team(p.latent);
  const auto threads = static_cast<unsigned>(cut.team.threads * cut.team.parts);
  cut.latent_blocks = static_cast<unsigned>((p.rows + cut.team.parts - 1) / cut.team.parts);
  cut.vec4s = static_cast<unsigned>((p.width - p.out_from + 3) / 4);
  MOTLEY_CHECK(cut.vec4s <= threads, "a head that a block's threads hold");
  cut.heads_a_block = threads / cut.vec4s;
  const auto heads = static_cast<unsigned>(p.rows * p.heads);
  // One vec4 per thread, until there are more than enough threads.
  constexpr unsigned many_heads = 8192;
  constexpr unsigned max_rounds = 4;
  const bool many = heads >= many_heads;
  const unsigned heads_together = cut.heads_a_block * (many ? max_rounds : 1);
  LaunchShape shape{.grid = cut.latent_blocks + (heads + heads_together - 1) / heads_together,
                    .threads = threads};
  const bool coded = p.pages.type == DType::f8_e4m3;
  MOTLEY_CHECK(!coded || p.tail.width == 2 * p.pairs, "codes of latents, and a tail of keys");
  if (coded)
    shape.shared_bytes = static_cast<std::size_t>(cut.team.parts) *
                         static_cast<std::size_t>((p.latent + 3) / 4) * sizeof(float4);
  const auto with_page = [&](const auto& body) {
    coded ? body(CodePage{}) : with_type(p.pages.type, body);
  };
  with_flag(in_whole_vec4(p), [&](auto whole) {
    with_page([&](auto page) {
      with_type(p.out_type, [&](auto out) {
        using Page = decltype(page);
        using Out = decltype(out);
        launch("prepare_latent",
               many ? prepare_rows<whole.value, Page, Out, max_rounds>
                    : prepare_rows<whole.value, Page, Out, 1>,
               shape, stream, p, cut);
      });
    });
  });
}

}  // namespace motley::kernels::cuda
