// Out of rank space and on to attention: two warps have a head of sixteen rows, with what comes
// behind the base product, and with the norm, the turn and the stores that prepare_heads would make
// of it.

#include "kernels/cuda/adapters_windows.cuh"
#include "kernels/cuda/heads.cuh"
#include "kernels/cuda/queue.cuh"

namespace motley::kernels::cuda::adapter_tiles {
namespace {

constexpr int most_parts = 4;

struct ExpandHeads {
  AdaptLinears call;
  Heads parts[most_parts];
  int linear_of[most_parts];  // in the call; -1: nobody has anything there
  int end_block[most_parts];
  Sequences sequences;
  BlockTable table;
  Slots slots;
};

// Loads from behind this do not come before it: registers hold a tile's rows, not all there is.
__device__ void keep_order() { asm volatile("" ::: "memory"); }

// Two warps of a block.
__device__ void sync_pair(int pair) { asm volatile("bar.sync %0, 64;" ::"r"(pair + 1) : "memory"); }

// What is done to a group's rows one after the other: a chunk's product, and the bias that comes
// behind a term's last.
struct Pass {
  FactorEntry factor;
  int chunk;
  int ranks;
  int place;    // in rank rows
  float scale;  // of the bias; 0: none
  const float* bias;
};
// A term takes eight ranks of the window at least.
constexpr int most_passes = rank_window / 8;

struct Passes {
  Pass all[most_passes];
  int count;
  const float* gain;
  const float* base_bias;

  __device__ Finish finish() const { return {.gain = gain, .bias = base_bias}; }
  // One thread's work.
  __device__ void find(const AdapterRows& adapters, const TermRange& terms,
                       const AdaptedLinear& linear) {
    count = 0;
    Finish finish{.bias = linear.bias};
    ChunkPlaces places(0);
#pragma unroll 1
    for (int i = terms.begin; i < terms.end; ++i) {
      const AdapterTerm term = adapters.terms[i];
      if (!has_site(adapters, term, linear.site)) continue;
      const SiteEntry* const entry = term.sites + linear.site;
      finish.take(*entry);
      const FactorEntry factor = entry->factor;
#pragma unroll 1
      for (int chunk = 0; chunk < factor.rank; chunk += chunk_ranks) {
        const int ranks = min(up_to_eight(factor.rank) - chunk, chunk_ranks);
        const bool last = chunk + chunk_ranks >= factor.rank;
        all[count++] = {
            .factor = factor,
            .chunk = chunk,
            .ranks = ranks,
            .place = places.place(ranks),
            .scale = last && entry->lora_bias != nullptr ? factor.scale[0] * term.scale : 0.0F,
            .bias = entry->lora_bias};
      }
    }
    gain = finish.gain;
    base_bias = finish.bias;
  }
};

// Every other sixteen outputs of a head, of sixteen rows: two warps have a head. A lane has four of
// each sixteen, of rows g and g + 8, and numbers half a head apart.
template <int width>
struct HalfHead {
  static constexpr int tiles = width / 32;
  float numbers[tiles][2][4];

  __device__ static int own() {
    return 16 * (static_cast<int>(threadIdx.x) / 32 % 2) + 4 * (static_cast<int>(threadIdx.x) % 4);
  }
  __device__ static int at(int tile) { return 32 * tile + own(); }
  __device__ static int row(int half) { return 8 * half + static_cast<int>(threadIdx.x) % 32 / 4; }

  __device__ void load(const Heads& heads, int head, const std::int32_t* rows, int count) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row(half) >= count) continue;
      const auto* const x = static_cast<const float*>(heads.x) + rows[row(half)] * heads.x_stride +
                            head * heads.x_head_stride + own();
#pragma unroll
      for (int j = 0; j < tiles; ++j) {
        const float4 four = __ldcs(reinterpret_cast<const float4*>(x + 32 * j));
        numbers[j][half][0] = four.x;
        numbers[j][half][1] = four.y;
        numbers[j][half][2] = four.z;
        numbers[j][half][3] = four.w;
      }
    }
  }

  // A chunk's product, whose rows in rank space stand in shared memory. `first` is the head's first
  // output.
  template <class Pages>
  __device__ void add_chunk(const RankRows<many_group_rows>& rank_rows, int row_tile,
                            const Pass& pass, int first, int out) {
    const FactorEntry& factor = pass.factor;
    // As BTiles::load, one tile behind the other.
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int o = first + at(0) - 4 * (lane % 4) + 4 * (lane / 8) + lane / 4 % 2;
    const auto split = std::int64_t{factor.split};
    const int padded = up_to_eight(factor.rank) - pass.chunk - 4 * (lane % 4);
    std::int64_t next = o * split + pass.chunk + 4 * (lane % 4);
    std::int64_t here = next;  // of the tile that is worked on
    const auto load = [&](std::int64_t index, bool there) {
      BTiles b;
#pragma unroll
      for (int i = 0; i < 2; ++i)
        b.numbers[i] = there ? four_of<Pages>(factor.b, index + 2 * i * split) : uint2{0, 0};
      return b;
    };
    BTiles b[tiles];
#pragma unroll
    for (int j = 0; j < tiles; ++j) {
      b[j] = load(next, padded > 0);
      next += 32 * split;
    }
#pragma unroll
    for (int j = 0; j < tiles; ++j) {
      float sums[2][4] = {};
      expand_step(rank_rows, row_tile, 0, b[j], sums);
#pragma unroll 1
      for (int rank = 16; rank < pass.ranks; rank += 16)
        expand_step(rank_rows, row_tile, rank, load(here + rank, rank < padded), sums);
      here += 32 * split;
      const float4 by = b_scales<Pages, true>(factor, first + at(j), out);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        add_scaled(numbers[j][half], by, sums[0][2 * half], sums[0][2 * half + 1],
                   sums[1][2 * half], sums[1][2 * half + 1]);
      keep_order();
    }
  }
  __device__ void add_bias(const float* bias, float scale, int first, int out) {
#pragma unroll
    for (int j = 0; j < tiles; ++j) {
      const float4 more = load_floats<true>(bias, first + at(j), out);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        add_scaled(numbers[j][half], more, scale, scale, scale, scale);
      keep_order();
    }
  }
  __device__ void finish(const Finish& finishing, int first, int out) {
#pragma unroll
    for (int j = 0; j < tiles; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        finishing.apply<true>(first + at(j), out, numbers[j][half]);
      keep_order();
    }
  }

  __device__ Halves halves(int j, int half) const {
    Halves head;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      head.low.at[i] = numbers[j][half][i];
      head.high.at[i] = numbers[j + tiles / 2][half][i];
    }
    return head;
  }
  // A row's sum of squares in the order of prepare_heads, whose lane 4 i + t has what lane t of
  // four has in the head's tile i; but for what the other warp and the other lanes have.
  __device__ float squares(int half) const {
    float sums[tiles / 2];
#pragma unroll
    for (int j = 0; j < tiles / 2; ++j) {
      const Halves head = halves(j, half);
      sums[j] = sum_of_four(head.low) + sum_of_four(head.high);
    }
    static_assert(tiles <= 4);
    return tiles == 4 ? sums[0] + sums[tiles / 2 - 1] : sums[0];
  }
  // Norm, turn and stores of a row; `place` as place_in_pages.
  __device__ void prepare(const Heads& heads, const float* weights, const float* cosines, int head,
                          int half, float factor, std::int64_t row, std::int64_t place) const {
    constexpr int half_width = width / 2;
#pragma unroll
    for (int j = 0; j < tiles / 2; ++j) {
      Halves value = halves(j, half);
      if (heads.norm_weight != nullptr) {
        value.low = normed<float>(value.low, read_four<true>(weights, at(j), width), factor,
                                  heads.weight_in_f32);
        value.high = normed<float>(value.high, read_four<true>(weights + half_width, at(j), width),
                                   factor, heads.weight_in_f32);
      }
      if (heads.cos_sin != nullptr)
        turn<float>(value, {.low = read_four<true>(cosines, at(j), width),
                            .high = read_four<true>(cosines + half_width, at(j), width)});
      if (heads.out != nullptr)
        write_halves(heads.out, heads.out_type,
                     row * heads.out_stride + head * heads.out_head_stride, at(j), half_width,
                     value);
      if (place >= 0)
        write_halves(heads.pages.data, heads.pages.type, place + head * heads.pages.head_stride,
                     at(j), half_width, value);
      keep_order();
    }
  }
};

// A block: rows of one label, heads of one projection, of which it has so many at a time.
constexpr int row_tiles = many_group_rows / 16;
constexpr int heads_at_once = warps / (2 * row_tiles);
constexpr int block_heads = 8;

template <class Pages, int width>
__global__ void __launch_bounds__(threads, 2)
    expand_head_rows(const __grid_constant__ ExpandHeads p) {
  __shared__ __align__(16) RankRows<many_group_rows> rank_rows;
  __shared__ GroupMemory group_memory;
  __shared__ std::int64_t places[many_group_rows];
  __shared__ __align__(16) unsigned char passes_memory[sizeof(Passes)];
  auto& passes = *reinterpret_cast<Passes*>(passes_memory);
  // Not in registers.
  __shared__ Heads heads;
  __shared__ AdaptedLinear linear;
  __shared__ float squares[2][2][threads];
  __shared__ __align__(16) float weights[width];
  __shared__ __align__(16) float cosines[many_group_rows][width];
  launch_dependents();
  const AdaptLinears& call = p.call;
  const AdapterRows& adapters = call.adapters;
  int part = 0;
  while (static_cast<int>(blockIdx.x) >= p.end_block[part]) ++part;
  const int index = p.linear_of[part];
  const auto out = static_cast<int>(call.linears[max(index, 0)].out);
  const auto t = static_cast<int>(threadIdx.x);
  if (t == 0) {
    heads = p.parts[part];
    linear = call.linears[max(index, 0)];
    if (index < 0) linear.bias = nullptr;
  }
  if (p.parts[part].norm_weight != nullptr && t < width) weights[t] = p.parts[part].norm_weight[t];
  __syncthreads();
  const int pair = t / 64;
  const int row_tile = pair % row_tiles;
  const int first_head =
      (static_cast<int>(blockIdx.x) - (part > 0 ? p.end_block[part - 1] : 0)) * block_heads;
  const int end_head = min(first_head + block_heads, static_cast<int>(heads.heads));
  const bool stores = heads.pages.data != nullptr;
  Groups<many_group_rows> all(adapters, p.slots, static_cast<int>(blockIdx.y), true, group_memory);
#pragma unroll 1
  for (int g = all.begin(); g < all.end(); g += all.step()) {
    const Group group = all.take(g);
    const std::int32_t* const rows = group_memory.rows + 16 * row_tile;
    const int count = group.rows - 16 * row_tile;
    wait_for_previous_grid();
    HalfHead<width> next;
    const auto load = [&](int head) { next.load(heads, head, rows, head < end_head ? count : 0); };
    load(first_head + pair / row_tiles);
    if (stores) {
#pragma unroll 1
      for (int row = t / 32; row < group.rows; row += warps) {
        const std::int64_t place =
            place_in_pages(p.sequences, p.table, heads.pages, group_memory.rows[row]);
        if (t % 32 == 0) places[row] = place;
      }
    }
    if (heads.cos_sin != nullptr) {
#pragma unroll 2
      for (int i = 4 * t; i < group.rows * width; i += 4 * threads)
        *reinterpret_cast<float4*>(&cosines[i / width][i % width]) =
            *reinterpret_cast<const float4*>(
                heads.cos_sin + std::int64_t{group_memory.rows[i / width]} * width + i % width);
    }
    if (t == 0) passes.find(adapters, index >= 0 ? group.terms : TermRange{}, linear);
    __syncthreads();
#pragma unroll 1
    for (int begin = first_head; begin < end_head; begin += heads_at_once) {
      const int head = begin + pair / row_tiles;
      const int first = head * width;
      const bool mine = head < end_head && count > 0;
      HalfHead<width> tile = next;
      load(head + heads_at_once);
#pragma unroll 1
      for (int i = 0; i < passes.count; ++i) {
        const Pass& pass = passes.all[i];
        // One chunk stays where it is.
        if (begin == first_head || passes.count > 1) {
          __syncthreads();
          store_rank_rows(call, group_memory, group.rows, index, pass.place, pass.ranks, rank_rows);
          __syncthreads();
        }
        if (!mine) continue;
        tile.template add_chunk<Pages>(rank_rows, row_tile, pass, first, out);
        if (pass.scale != 0) tile.add_bias(pass.bias, pass.scale, first, out);
      }
      if (!mine) continue;
      tile.finish(passes.finish(), first, out);
      float sums[2] = {};
      if (heads.norm_weight != nullptr) {
        float(&shared)[2][threads] = squares[begin / heads_at_once % 2];
#pragma unroll
        for (int half = 0; half < 2; ++half) shared[half][t] = tile.squares(half);
        sync_pair(pair);
#pragma unroll
        for (int half = 0; half < 2; ++half)
          sums[half] = sum_of_lanes(shared[half][t & ~32] + shared[half][t | 32], 4);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = tile.row(half);
        if (row < count)
          tile.prepare(heads, weights, cosines[16 * row_tile + row], head, half,
                       Squares::factor_of(sums[half], width, heads.eps), rows[row],
                       stores ? places[16 * row_tile + row] : -1);
      }
    }
    __syncthreads();
  }
  wait_for_previous_grid();
}

// The map whose results a projection's heads are; -1: nobody has anything there.
int linear_of(const AdaptLinears& call, const Heads& heads) {
  for (int i = 0; i < call.count; ++i)
    if (call.linears[i].acc == heads.x) return i;
  return -1;
}

}  // namespace

bool takes_heads(const AdaptHeads& params) {
  const AdaptLinears& call = params.linears;
  const PrepareHeads& heads = params.heads;
  if (rank_windows(call) > 1 || heads.count < 1 || heads.count > most_parts ||
      !layout_of(call).whole)
    return false;
  const std::int64_t width = heads.all[0].width;
  int found = 0;
  for (int i = 0; i < heads.count; ++i) {
    const Heads& part = heads.all[i];
    if (part.x_type != DType::f32 || part.width != width || !lanes_hold(part)) return false;
    const int index = linear_of(call, part);
    if (index < 0) continue;
    const AdaptedLinear& linear = call.linears[index];
    if (linear.result != part.x || linear.out != part.heads * width ||
        part.x_head_stride != width || linear.acc_stride != part.x_stride)
      return false;
    ++found;
  }
  return found == call.count && (width == 64 || width == 128);
}

void expand_heads(const AdaptHeads& params, StreamHandle stream) {
  const PrepareHeads& heads = params.heads;
  ExpandHeads expand{};
  expand.call = params.linears;
  expand.sequences = heads.sequences;
  expand.table = heads.table;
  expand.slots = many_slots(params.linears.adapters);
  int blocks = 0;
  for (int i = 0; i < heads.count; ++i) {
    expand.parts[i] = heads.all[i];
    expand.linear_of[i] = linear_of(params.linears, heads.all[i]);
    blocks += static_cast<int>((heads.all[i].heads + block_heads - 1) / block_heads);
    expand.end_block[i] = blocks;
  }
  const bool narrow = heads.all[0].width == 64;
  with_pages(params.linears.adapters.pages, [&](auto pages) {
    using Pages = decltype(pages);
    if constexpr (!std::is_same_v<Pages, PagesF32>)
      queue("adapters' heads", narrow ? expand_head_rows<Pages, 64> : expand_head_rows<Pages, 128>,
            {.grid = static_cast<unsigned>(blocks),
             .grid_y = static_cast<unsigned>(expand.slots.count),
             .threads = threads},
            stream, expand);
  });
}

}  // namespace motley::kernels::cuda::adapter_tiles
