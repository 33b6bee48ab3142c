// The expand with attention's preparation as its epilogue. A warp has one head of 8 rows: it adds
// deltas to the base product, then norms, rotates and stores as prepare_heads would.

#include <optional>
#include <type_traits>

#include "kernels/cuda/adapters/delta_kernels.h"
#include "kernels/cuda/adapters/expand.cuh"
#include "kernels/cuda/elementary/heads.cuh"
#include "kernels/cuda/primitives/launch.cuh"

namespace motley::kernels::cuda {
namespace adapter_tiles {
namespace {

constexpr int max_parts = 4;

struct ExpandHeads {
  AdaptLinears call;
  Heads parts[max_parts];
  int linear_of[max_parts];  // index in the call; -1: no adapter has a factor there
  int end_block[max_parts];
  Sequences sequences;
  BlockTable table;
  Slots slots;
};

// A head of 8 rows. The numbers of a lane are half a head apart.
template <int width>
struct HeadRows {
  static constexpr int tiles = width / warp_outputs;
  static constexpr int half_tiles = tiles / 2;
  static constexpr int half_width = width / 2;
  WarpNumbers<tiles> numbers;

  static __device__ void copy(const float* head, const std::int64_t* begins, int count,
                              RowsTile (&to)[tiles]) {
#pragma unroll
    for (int i = 0; i < RowsTile::copies; ++i) {
      const int row = RowsTile::copied_row(i);
      const bool there = row < count;
      const float* const x = head + (there ? begins[row] : 0) + RowsTile::copied_output();
#pragma unroll
      for (int j = 0; j < tiles; ++j) to[j].copy(i, x + warp_outputs * j, there);
    }
  }
  __device__ void take(const RowsTile (&from)[tiles]) {
#pragma unroll
    for (int j = 0; j < tiles; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float4 vec4 = from[j].own(half);
        numbers.at[j][half][0] = vec4.x;
        numbers.at[j][half][1] = vec4.y;
        numbers.at[j][half][2] = vec4.z;
        numbers.at[j][half][3] = vec4.w;
      }
    }
  }

  // Of tile j and of the one so many tiles later.
  __device__ Halves halves(int j, int half, int apart = half_tiles) const {
    Halves head;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      head.low.at[i] = numbers.at[j][half][i];
      head.high.at[i] = numbers.at[j + apart][half][i];
    }
    return head;
  }
  __device__ void put(int j, int half, const Halves& head, int apart = half_tiles) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      numbers.at[j][half][i] = head.low.at[i];
      numbers.at[j + apart][half][i] = head.high.at[i];
    }
  }
  // A row's sum of squares in the order of prepare_heads: its lane 8 j + g has what lane g of eight
  // has in tile j of the head here.
  __device__ float squares(int half) const {
    float sums[half_tiles];
#pragma unroll
    for (int j = 0; j < half_tiles; ++j) {
      const Halves head = halves(j, half);
      sums[j] = sum_of_vec4(head.low) + sum_of_vec4(head.high);
    }
    static_assert(half_tiles <= 2);
    return sum_of_row(half_tiles == 2 ? sums[0] + sums[half_tiles - 1] : sums[0]);
  }
  // Called by all lanes; `weights` are in shared memory.
  __device__ void norm(const float* weights, float eps, bool weight_in_f32) {
    float factors[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      factors[half] = Squares::factor_of(squares(half), width, eps);
#pragma unroll
    for (int j = 0; j < half_tiles; ++j) {
      const int at = warp_outputs * j + lane_outputs();
      const Vec4 low = load_vec4<true>(weights, at, width);
      const Vec4 high = load_vec4<true>(weights + half_width, at, width);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Halves head = halves(j, half);
        put(j, half,
            {.low = normed<float>(head.low, low, factors[half], weight_in_f32),
             .high = normed<float>(head.high, high, factors[half], weight_in_f32)});
      }
    }
  }
  // `cosines` of the row, in shared memory. Pairs are `apart` tiles apart: half a head, or less
  // where only the first numbers are rotated.
  template <int apart>
  __device__ void rotate_row(int half, const float* cosines) {
#pragma unroll
    for (int j = 0; j < apart; ++j) {
      const int at = warp_outputs * j + lane_outputs();
      Halves head = halves(j, half, apart);
      rotate<float>(head, {.low = load_vec4<true>(cosines, at, width),
                           .high = load_vec4<true>(cosines + apart * warp_outputs, at, width)});
      put(j, half, head, apart);
    }
  }
  __device__ void write_row(int half, void* to, DType type, std::int64_t begin) const {
#pragma unroll
    for (int j = 0; j < half_tiles; ++j)
      write_halves(to, type, begin, warp_outputs * j + lane_outputs(), half_width, halves(j, half));
  }
};

// A block has rows of one label and heads of one projection, two heads at a time. A warp has 8 rows
// of one of them, and prefetches its next.
constexpr int block_heads = 16;
constexpr int row_tiles = many_group_rows / warp_rows;
constexpr int heads_at_once = warps / row_tiles;
constexpr int stages = 2;

template <int width>
struct HeadsMemory {
  RowsTile x[warps][stages][HeadRows<width>::tiles];
  RankTile ranks[warps][32];  // of each lane, in the first pass
  // Offsets of rows in x, in the result, and in KV memory.
  std::int64_t from[many_group_rows];
  std::int64_t to[many_group_rows];
  std::int64_t places[many_group_rows];
  Passes passes;
  GroupMemory group;
  alignas(16) float weights[width];
  // padded: lanes read their rows without bank conflicts
  alignas(16) float cosines[many_group_rows][width + 4];
};

// Copies the cosines of a group's rows, `dims` for each. All threads of a block call it.
template <int dims, int width>
__device__ void copy_cosines(const float* cos_sin, const Group& group, HeadsMemory<width>& memory) {
#pragma unroll 4
  for (int i = 4 * static_cast<int>(threadIdx.x); i < group.rows * dims; i += 4 * threads)
    copy_16(smem_addr(&memory.cosines[i / dims][i % dims]),
            cos_sin + std::int64_t{memory.group.rows[i / dims]} * dims + i % dims);
}

// Finds where a group's rows are stored. All threads of a block call it.
template <int width>
__device__ void find_places(const ExpandHeads& p, const Heads& heads, const Group& group,
                            HeadsMemory<width>& memory) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int i = 0; i < many_group_rows / warps; ++i) {
    const int row = warp + i * warps;
    if (row >= group.rows) continue;
    const PagePlace place = place_in_pages(p.sequences, p.table, memory.group.rows[row]);
    if (threadIdx.x % 32 == 0) memory.places[row] = place.stored() ? place.in(heads.pages) : -1;
  }
}

// Rotates and writes a head of this lane's rows, from `first_row` of the group on.
template <int rotated, int width>
__device__ void write_head(const Heads& heads, const HeadsMemory<width>& memory, int first_row,
                           int count, int head, HeadRows<width>& tile) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (lane_row(half) >= count) continue;
    const int row = first_row + lane_row(half);
    if (heads.cos_sin != nullptr)
      tile.template rotate_row<rotated / 2 / warp_outputs>(half, memory.cosines[row]);
    if (heads.out != nullptr)
      tile.write_row(half, heads.out, heads.out_type,
                     memory.to[row] + head * heads.out_head_stride);
    if (heads.pages.data != nullptr && memory.places[row] >= 0)
      tile.write_row(half, heads.pages.data, heads.pages.type,
                     memory.places[row] + head * heads.pages.head_stride);
  }
}

// `rotated`: columns of a head, the first ones.
template <class FactorType, int width, int rotated>
__global__ void __launch_bounds__(threads, 2)
    expand_head_rows(const __grid_constant__ ExpandHeads p) {
  using Rows = HeadRows<width>;
  extern __shared__ __align__(16) unsigned char shared[];
  auto& memory = *reinterpret_cast<HeadsMemory<width>*>(shared);
  launch_dependents();
  const AdaptLinears& call = p.call;
  int part = 0;
  while (static_cast<int>(blockIdx.x) >= p.end_block[part]) ++part;
  const Heads& heads = p.parts[part];
  const int index = p.linear_of[part];
  const auto t = static_cast<int>(threadIdx.x);
  const int lane = t % 32;
  const int warp = t / 32;
  const bool norms = heads.norm_weight != nullptr;
  if (norms && t < width) memory.weights[t] = heads.norm_weight[t];
  const AdaptedLinear& linear = call.linears[max(index, 0)];
  const auto out = static_cast<int>(heads.heads) * width;
  const int begin_head =
      (static_cast<int>(blockIdx.x) - (part > 0 ? p.end_block[part - 1] : 0)) * block_heads;
  const int end_head = min(begin_head + block_heads, static_cast<int>(heads.heads));
  const int first_row = warp % row_tiles * warp_rows;
  Groups<many_group_rows> all(call.adapters, p.slots, static_cast<int>(blockIdx.y), true,
                              memory.group);
#pragma unroll 1
  for (int g = all.begin(); g < all.end(); g += all.step()) {
    const Group group = all.take(g);
    const std::int32_t* const rows = memory.group.rows;
    if (t < group.rows) {
      memory.from[t] = rows[t] * heads.x_stride;
      memory.to[t] = rows[t] * heads.out_stride;
    }
    __syncthreads();
    const Passes& passes = memory.passes;
    const int count = group.rows - first_row;
    wait_for_previous_grid();
    const auto copy = [&](int head, int stage) {
      if (head < end_head && count > 0)
        Rows::copy(static_cast<const float*>(heads.x) + head * heads.x_head_stride,
                   memory.from + first_row, count, memory.x[warp][stage]);
      copies_commit();
    };
    if (heads.cos_sin != nullptr) copy_cosines<rotated>(heads.cos_sin, group, memory);
    int head = begin_head + warp / row_tiles;
#pragma unroll
    for (int i = 0; i < stages; ++i) copy(head + i * heads_at_once, i);
    if (heads.pages.data != nullptr) find_places(p, heads, group, memory);
    if (t == threads - 1)
      memory.passes.find(call.adapters, index >= 0 ? group.terms : TermRange{}, linear.site,
                         index >= 0 ? linear.bias : heads.bias, 0);
    copies_wait<stages - 1>();
    __syncthreads();
    const bool ranks_there = lane_rank_row() < count;
    const float* const ranks =
        rank_row(call, rows[ranks_there ? first_row + lane_rank_row() : 0], max(index, 0));
    if (passes.count > 0)
      memory.ranks[warp][lane].load(ranks + passes.all[0].place, ranks_there, 0,
                                    passes.all[0].ranks);
    int stage = 0;
#pragma unroll 1
    for (; head < end_head && count > 0; head += heads_at_once) {
      const auto output = [&](int j) { return head * width + warp_outputs * j; };
      Rows tile;
      copies_wait<stages - 1>();
      __syncwarp();
      tile.take(memory.x[warp][stage]);
      __syncwarp();
      copy(head + stages * heads_at_once, stage);
      stage = stage + 1 < stages ? stage + 1 : 0;
      tile.numbers.template adapt<FactorType>(passes, ranks, ranks_there, out, output,
                                              memory.ranks[warp][lane]);
      if (norms) tile.norm(memory.weights, heads.eps, heads.weight_in_f32);
      write_head<rotated>(heads, memory, first_row, count, head, tile);
    }
    __syncthreads();
  }
  wait_for_previous_grid();
}

// The map that computes the heads of a projection; -1: no adapter has a factor there.
int linear_of(const AdaptLinears& call, const Heads& heads) {
  for (int i = 0; i < call.count; ++i)
    if (call.linears[i].acc == heads.x) return i;
  return -1;
}

// Calls body(width, rotated columns) for the kernels that there are.
template <class Body>
void with_shape(std::int64_t width, std::int64_t rotated, const Body& body) {
  if (width == 64)
    return body(std::integral_constant<int, 64>(), std::integral_constant<int, 64>());
  if (rotated == 64)
    return body(std::integral_constant<int, 128>(), std::integral_constant<int, 64>());
  body(std::integral_constant<int, 128>(), std::integral_constant<int, 128>());
}

template <class FactorType, int width, int rotated>
void launch_heads(const ExpandHeads& expand, int blocks, StreamHandle stream) {
  constexpr std::size_t bytes = sizeof(HeadsMemory<width>);
  launch("adapters' heads", expand_head_rows<FactorType, width, rotated>,
         {.grid = static_cast<unsigned>(blocks),
          .grid_y = static_cast<unsigned>(expand.slots.count),
          .threads = threads,
          .shared_bytes = bytes},
         stream, expand);
}

template <class FactorType, int width, int rotated>
Result<void> prepare_shape() {
  return allow_shared_memory("adapters' heads", expand_head_rows<FactorType, width, rotated>,
                             sizeof(HeadsMemory<width>));
}

template <class FactorType>
Result<void> prepare_factors() {
  MOTLEY_TRY_VOID((prepare_shape<FactorType, 64, 64>()));
  MOTLEY_TRY_VOID((prepare_shape<FactorType, 128, 64>()));
  return prepare_shape<FactorType, 128, 128>();
}

// The rotated columns of all projections that are rotated; nothing: they differ.
std::optional<std::int64_t> rotated_columns(const PrepareHeads& heads) {
  std::optional<std::int64_t> columns;
  for (int i = 0; i < heads.count; ++i) {
    const Heads& part = heads.all[i];
    if (part.cos_sin == nullptr) continue;
    if (columns && *columns != 2 * part.pairs) return std::nullopt;
    columns = 2 * part.pairs;
  }
  return columns.value_or(heads.all[0].width);
}

// Whether the map's results are the projection's heads, in place.
bool maps_in_place(const AdaptedLinear& linear, const Heads& part) {
  return linear.result == part.x && linear.out == part.heads * part.width &&
         part.x_head_stride == part.width && linear.acc_stride == part.x_stride;
}

}  // namespace
}  // namespace adapter_tiles

Result<void> prepare_expand_heads() {
  using namespace adapter_tiles;
  MOTLEY_TRY_VOID(prepare_factors<FactorBf16>());
  return prepare_factors<FactorF8>();
}

Support supports_heads(const DeltaProblem& problem) {
  using namespace adapter_tiles;
  const AdaptLinears& call = problem.linears;
  const PrepareHeads& heads = *problem.heads;
  if (call.adapters.factor_type == DType::f32)
    return Support::no("it reads factors in bf16 or FP8");
  if (rank_chunks(RankLayout::panels, call.max_ranks) > 1)
    return Support::no("it takes ranks of one chunk");
  if (!layout_of(call).whole) return Support::no("it writes four outputs at a time");
  if (heads.count < 1 || heads.count > max_parts)
    return Support::no("it takes one to four projections");
  const std::int64_t width = heads.all[0].width;
  if (width != 64 && width != 128) return Support::no("it takes heads of 64 or 128");
  const auto rotated = rotated_columns(heads);
  if (!rotated || (*rotated != width && (width != 128 || *rotated != 64)))
    return Support::no("it rotates whole heads, or the first half of heads of 128");
  int found = 0;
  for (int i = 0; i < heads.count; ++i) {
    const Heads& part = heads.all[i];
    if (part.x_type != DType::f32 || part.width != width || !lanes_hold(part))
      return Support::no("it takes heads of float32, all of one width, that lanes hold");
    if (part.pages.type == DType::f8_e4m3) return Support::no("it stores no codes");
    const int index = linear_of(call, part);
    if (index < 0) continue;
    if (part.bias != nullptr) return Support::no("it adds a map's bias only");
    if (!maps_in_place(call.linears[index], part))
      return Support::no("it takes heads where their maps' results stand");
    ++found;
  }
  if (found != call.count) return Support::no("it takes maps whose results are heads");
  return Support::yes();
}

void expand_heads(const DeltaProblem& problem, const RankChunk& /*chunk*/, StreamHandle stream) {
  using namespace adapter_tiles;
  const AdaptLinears& call = problem.linears;
  const PrepareHeads& heads = *problem.heads;
  ExpandHeads expand{};
  expand.call = call;
  expand.sequences = heads.sequences;
  expand.table = heads.table;
  expand.slots = many_slots(call.adapters);
  int blocks = 0;
  for (int i = 0; i < heads.count; ++i) {
    expand.parts[i] = heads.all[i];
    expand.linear_of[i] = linear_of(call, heads.all[i]);
    blocks += static_cast<int>((heads.all[i].heads + block_heads - 1) / block_heads);
    expand.end_block[i] = blocks;
  }
  const std::int64_t rotated = *rotated_columns(heads);
  with_bf16_or_f8(call.adapters.factor_type, [&](auto type) {
    using FactorType = decltype(type);
    with_shape(heads.all[0].width, rotated, [&](auto width, auto columns) {
      launch_heads<FactorType, width.value, columns.value>(expand, blocks, stream);
    });
  });
}

}  // namespace motley::kernels::cuda
