#include <cooperative_groups.h>

#include "base/check.h"
#include "kernels/adapters.h"
#include "kernels/cuda/elementary/elementary.h"
#include "kernels/cuda/elementary/norm.cuh"
#include "kernels/cuda/elementary/router.cuh"
#include "kernels/cuda/elementary/router.h"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/primitives/cluster.cuh"
#include "kernels/cuda/primitives/ptx.cuh"
#include "kernels/cuda/primitives/tensor_core.cuh"

// Sum, norm, router product and choice in one launch, for batches where launches cost more than
// memory traffic. A cluster of 8 blocks has 8 rows. Each block computes one row's norm and sends it
// to all; multiplies all rows by its experts' weights, which were loaded to shared memory before
// the previous grid ended; and routes its own row by the logits that it receives.
namespace motley::kernels::cuda {
namespace {

constexpr int ranks = 8;  // blocks of a cluster, and its rows
constexpr int threads = max_norm_threads;
constexpr int warps = threads / 32;
constexpr int tile_experts = 16;
constexpr int step_inputs = 32;  // of two products; 16 bytes per lane
// With more rows the product is cuda::linear's, as it is where attention's output delta is fused
// with the norm (adapt_linear_and_norm). So base rows have the same product in both steps.
constexpr std::int64_t max_rows = few_adapted_rows;
constexpr std::size_t max_shared_bytes = std::size_t{226} << 10;

// The division of work, and a block's shared memory, part by part.
struct Layout {
  NormTeam team;
  bool each_makes_all;  // so few rows that each block computes all of them
  int experts;          // of a block, in whole tiles
  int pitch;            // bytes between rows of weights or of x

  std::size_t row_bytes() const { return static_cast<std::size_t>(pitch); }
  std::size_t bytes(const RouteTokens& p) const {
    const auto own = static_cast<std::size_t>(experts);
    return (own + ranks) * row_bytes() + sizeof(float) * warps * ranks * own +
           sizeof(float) * static_cast<std::size_t>(routing::padded(p.experts)) +
           routing::row_bytes(p);
  }
};

Layout layout_of(const NormAndRoute& p) {
  const int each = (p.route.experts + ranks - 1) / ranks;
  const Add& add = p.rows.add;
  const NormTeam team = norm_team(add.width);
  const bool stands_apart = add.out != add.a && add.out != add.b;
  return {.team = team,
          .each_makes_all = stands_apart && add.rows <= ranks && add.rows * team.threads <= threads,
          .experts = (each + tile_experts - 1) / tile_experts * tile_experts,
          .pitch = bank_free_pitch(2 * p.router.w.in)};
}

struct Barriers {
  std::uint64_t weights;
  std::uint64_t rows;
  std::uint64_t logits;
};

// A block's rows and experts, and the parts of its shared memory.
struct Block {
  int rank;
  int first_expert;
  int experts;
  std::int64_t first_row;  // of the cluster
  int rows;                // of the cluster
  int pitch;
  unsigned char* weights;
  unsigned char* x;
  float* sums;    // [warps][rows][layout.experts]
  float* logits;  // of this block's row
  std::uint32_t* routing_words;
};
__device__ Block block_of(const NormAndRoute& p, const Layout& layout, unsigned char* shared) {
  Block block;
  block.rank = static_cast<int>(blockIdx.y);
  block.pitch = layout.pitch;
  block.weights = shared;
  block.x = block.weights + layout.experts * layout.pitch;
  block.sums = reinterpret_cast<float*>(block.x + ranks * layout.pitch);
  block.logits = block.sums + warps * ranks * layout.experts;
  block.routing_words =
      reinterpret_cast<std::uint32_t*>(block.logits + routing::padded(p.route.experts));
  block.first_expert = block.rank * layout.experts;
  block.experts = max(0, min(layout.experts, p.route.experts - block.first_expert));
  block.first_row = std::int64_t{blockIdx.x} * ranks;
  block.rows = static_cast<int>(min(p.rows.add.rows - block.first_row, std::int64_t{ranks}));
  return block;
}

// Initialises the barriers, and loads the weights of the block's experts. One warp calls it.
__device__ void load_weights(const NormAndRoute& p, const Block& block, Barriers& there) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t in = p.router.w.in;
  const auto bytes = static_cast<uint32_t>(2 * in);
  if (lane == 0) {
    bar_init(smem_addr(&there.weights), 1);
    bar_init(smem_addr(&there.rows), 1);
    bar_init(smem_addr(&there.logits), 1);
    fence_bar_init();
    bar_expect(smem_addr(&there.weights), static_cast<uint32_t>(block.experts) * bytes);
    bar_expect(smem_addr(&there.rows), static_cast<uint32_t>(block.rows) * bytes);
    bar_expect(smem_addr(&there.logits), static_cast<uint32_t>(p.route.experts) * sizeof(float));
  }
  __syncwarp();
#pragma unroll 1
  for (int expert = lane; expert < block.experts; expert += 32) {
    bulk_copy(smem_addr(block.weights + expert * block.pitch),
              static_cast<const Bf16*>(p.router.w.data) + (block.first_expert + expert) * in, bytes,
              smem_addr(&there.weights));
  }
}

// Sends a vec4 of a row, in bf16, to every block of the cluster.
__device__ void send_to_all(bf16* place, const Vec4& vec4, std::uint64_t* bar) {
  uint2 value;
  value.x = std::uint32_t{narrow<bf16>(vec4.at[0]).bits} |
            std::uint32_t{narrow<bf16>(vec4.at[1]).bits} << 16;
  value.y = std::uint32_t{narrow<bf16>(vec4.at[2]).bits} |
            std::uint32_t{narrow<bf16>(vec4.at[3]).bits} << 16;
#pragma unroll
  for (int rank = 0; rank < ranks; ++rank)
    send(address_in_rank(smem_addr(place), rank), address_in_rank(smem_addr(bar), rank), value);
}

// Makes the cluster's normed rows in the memory of each of its blocks. With one team a block
// computes its own row for all blocks; else it computes every row itself, one team per row.
__device__ void norm_rows(const NormAndRoute& p, const Layout& layout, const Block& block,
                          Barriers& there) {
  __shared__ float warp_sums[warps];
  const AddAndNorm& rows = p.rows;
  const std::int64_t in = p.router.w.in;
  const int team = static_cast<int>(threadIdx.x) / layout.team.threads;
  const int made = layout.each_makes_all ? team : block.rank;  // index of the row in the cluster
  const std::int64_t row = block.first_row + made;
  const bool makes = made < block.rows && (layout.each_makes_all || team == 0);
  const bool keeps = !layout.each_makes_all || block.rank == 0;
  const std::int64_t width = makes ? in : 0;
  const auto* const a = static_cast<const float*>(rows.add.a) + row * rows.add.a_stride;
  const auto* const b = static_cast<const float*>(rows.add.b) + row * rows.add.b_stride;
  auto* const sum = static_cast<float*>(rows.add.out) + row * rows.add.out_stride;
  auto* const out = static_cast<bf16*>(rows.norm.out) + row * rows.norm.out_stride;
  auto* const x_row = reinterpret_cast<bf16*>(block.x + made * block.pitch);
  const NormShare<true> share(rows.norm.weight, width, layout.team,
                              static_cast<int>(threadIdx.x) % layout.team.threads);
  // Weights may be read before the previous grid has ended.
  if (rows.add.b_bias != nullptr) {
    constexpr std::int64_t line = 32;
    for (std::int64_t at = line * threadIdx.x; at < in; at += line * threads)
      prefetch_l2(rows.add.b_bias + at);
  }
  // From here on other blocks may write to this block's memory.
  cooperative_groups::this_cluster().sync();
  wait_for_previous_grid();
  const Addends<float, float> addends{.a = a, .b = b, .b_bias = rows.add.b_bias};
  const auto read = [&](std::int64_t at) { return addends.sum<float, true>(at, width); };
  share.run<bf16>(
      {in, rows.norm.eps, rows.norm.weight_in_f32}, warp_sums, read,
      [&](std::int64_t at, const Vec4& vec4) {
        if (keeps) store_vec4<true>(sum, at, width, vec4);
      },
      [&](std::int64_t at) {
        return layout.each_makes_all ? read(at) : load_vec4<true>(sum, at, width);
      },
      [&](std::int64_t at, const Vec4& vec4) {
        if (keeps) store_vec4<true>(out, at, width, vec4);
        if (layout.each_makes_all) return store_vec4<true>(x_row, at, width, vec4);
        send_to_all(x_row + at, vec4, &there.rows);
      });
  if (layout.each_makes_all) {
    __syncthreads();
  } else {
    bar_wait(smem_addr(&there.rows), 0);
  }
}

// Each warp's part of the products of all rows with the block's experts.
__device__ void multiply_rows(const Block& block, const Layout& layout, std::int64_t in) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int at_lane = lane / 4 * block.pitch + 16 * (lane % 4);
#pragma unroll 1
  for (int tile = 0; tile < block.experts; tile += tile_experts) {
    float acc[4] = {};
    const unsigned char* const w = block.weights + tile * block.pitch + at_lane;
    for (int step = warp; step < in / step_inputs; step += warps) {
      const int at = 2 * step_inputs * step;
      const auto low = *reinterpret_cast<const uint4*>(w + at);
      const auto high = *reinterpret_cast<const uint4*>(w + 8 * block.pitch + at);
      const auto each = *reinterpret_cast<const uint4*>(block.x + at_lane + at);
      multiply_add(acc, low.x, high.x, low.y, high.y, each.x, each.y);
      multiply_add(acc, low.z, high.z, low.w, high.w, each.z, each.w);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int of_row = 2 * (lane % 4) + i % 2;
      block.sums[(warp * ranks + of_row) * layout.experts + tile + lane / 4 + 8 * (i / 2)] = acc[i];
    }
  }
}

// Sums the warps' parts, and sends each row's logits to the block that routes it.
__device__ void send_logits(const NormAndRoute& p, const Block& block, const Layout& layout,
                            Barriers& there) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < ranks * layout.experts; i += threads) {
    const int expert = i % layout.experts;
    const int of_row = i / layout.experts;
    if (expert >= block.experts || of_row >= block.rows) continue;
    float logit = block.sums[i];
#pragma unroll
    for (int w = 1; w < warps; ++w) logit += block.sums[w * ranks * layout.experts + i];
    const int logit_of = block.first_expert + expert;
    if (p.logits_only) {
      p.router.y[(block.first_row + of_row) * p.router.y_stride + logit_of] = logit;
      continue;
    }
    if (p.bias != nullptr) logit += p.bias[logit_of];
    send(address_in_rank(smem_addr(block.logits + logit_of), of_row),
         address_in_rank(smem_addr(&there.logits), of_row), __float_as_uint(logit));
  }
}

__global__ void __launch_bounds__(threads, 1)
    norm_and_route_rows(const __grid_constant__ NormAndRoute p, Layout layout) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ Barriers there;
  launch_dependents();
  const Block block = block_of(p, layout, shared);
  if (threadIdx.x < 32) load_weights(p, block, there);
  norm_rows(p, layout, block, there);
  bar_wait(smem_addr(&there.weights), 0);
  multiply_rows(block, layout, p.router.w.in);
  __syncthreads();
  send_logits(p, block, layout, there);
  // A block without a row receives no logits and may exit; if no block receives any, all may.
  if (block.rank >= block.rows || p.logits_only) return;
  bar_wait(smem_addr(&there.logits), 0);
  const std::int64_t row = block.first_row + block.rank;
  const std::int64_t place = row * p.route.experts_per_token;
  std::int32_t* const ids = p.route.ids + place;
  float* const choice_weights = p.route.weights + place;
  if (!routing::is_live(p.route, row)) {
    return routing::choose_none(p.route, ids, choice_weights, static_cast<int>(threadIdx.x),
                                threads);
  }
  routing::route_row_by_block(p.route, block.logits, block.routing_words, ids, choice_weights);
}

}  // namespace

bool routes_in_one_launch(const NormAndRoute& p) {
  return p.rows.add.rows <= max_rows && !p.router.exact && !p.router.batch_invariant &&
         p.router.w.kind == WeightKind::bf16 && norm_takes_vec4(p.rows) &&
         p.router.w.in % step_inputs == 0 &&
         reinterpret_cast<std::uintptr_t>(p.router.w.data) % 16 == 0 &&
         layout_of(p).bytes(p.route) <= max_shared_bytes;
}

Result<void> prepare_norm_and_route() {
  return allow_shared_memory("norm_and_route", norm_and_route_rows, max_shared_bytes);
}

void norm_and_route(const NormAndRoute& p, StreamHandle stream) {
  check_routing(p.route);
  MOTLEY_CHECK(p.router.x == p.rows.norm.out && p.router.w.in == p.rows.add.width &&
                   p.router.rows == p.rows.add.rows && p.router.heads == 1 &&
                   p.router.w_first == 0 && p.router.out == p.route.experts &&
                   p.route.tokens == p.router.rows && p.route.logits == p.router.y &&
                   p.router.y_stride == p.router.out,
               "a router of the normed rows");
  if (p.rows.add.rows <= 0) return;
  if (!routes_in_one_launch(p)) {
    add_and_norm(p.rows, stream);
    linear(p.router, stream);
    if (p.logits_only) return;
    if (p.bias != nullptr) {
      round_to({.rows = p.router.rows,
                .width = p.router.out,
                .x = p.router.y,
                .x_stride = p.router.y_stride,
                .bias = p.bias,
                .out = p.router.y,
                .out_stride = p.router.y_stride},
               stream);
    }
    return route(p.route, stream);
  }
  const Layout layout = layout_of(p);
  launch("norm_and_route", norm_and_route_rows,
         {.grid = static_cast<unsigned>((p.rows.add.rows + ranks - 1) / ranks),
          .grid_y = ranks,
          .threads = threads,
          .shared_bytes = layout.bytes(p.route),
          .cluster_y = ranks},
         stream, p, layout);
}

}  // namespace motley::kernels::cuda
