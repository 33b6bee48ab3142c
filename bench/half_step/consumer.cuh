// The warps that multiply: what they do whatever the experts' design is.
#pragma once

#include "kernels/cuda/primitives/warp.cuh"
#include "producer.cuh"
#include "products.cuh"

namespace motley::bench::HALF_STEP_NAMESPACE {

constexpr int x_pitch = hidden + 16;  // lanes of four rows are in other banks
constexpr int inner_pitch = inner + 16;

// Shared memory after the slots.
template <int rows>
struct Buffers {
  static constexpr int items = max_projection_items < 8 ? 8 : max_projection_items;
  Bf16 x[rows][x_pitch];
  Bf16 projection_norm[hidden];
  float sums[items][consumer_warps][rows][tile];
  Bf16 slice[2][rows][tile];  // h of two slices
  float parts[consumer_warps][rows][tile];
};
template <int rows>
struct WholeBuffers : Buffers<rows> {
  Bf16 inner_values[rows * taken][inner_pitch];
};
template <int rows>
struct Shared {
  Barriers barriers;
  Choice<rows> choice;
  float squares[2][rows][consumer_warps];
  float router[block_logits][rows][consumer_warps];
};

// Two numbers in bf16, and number i of four.
__device__ inline std::uint32_t rounded(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&both);
}
__device__ inline float number(const uint2& four, int i) {
  const std::uint32_t word = i < 2 ? four.x : four.y;
  return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xFFFF0000);
}
__device__ inline float silu(float x) { return x / (1.0F + __expf(-x)); }

template <class Format, int rows, bool computes>
class Consumer {
 protected:
  using Products = ExpertProducts<Format>;

  __device__ Consumer(const HalfStep& p, Slots slots, Shared<rows>& shared, Buffers<rows>& buffers)
      : p_(p),
        slots_(slots),
        shared_(shared),
        buffers_(buffers),
        watch_(p),
        thread_(static_cast<int>(threadIdx.x)),
        block_(static_cast<int>(blockIdx.x)),
        blocks_(static_cast<int>(gridDim.x)),
        l_{thread_ / 32, thread_ % 32} {}

  // Until the choice is known.
  __device__ void begin() {
    stamp(0);
    stamp_place();
    read_constants();
    kernels::cuda::wait_for_previous_grid();
    stamp(1);
    open();
    output();
    stamp(2);
    if (p_.rung.hands_over) {
      gather<true>(Cells{rows}.x(), 0, Place::x);
      stamp(3);
      send_logits();
      choose();
    }
    stamp(5);
    count_ = p_.rung.routes ? shared_.choice.count : p_.expert_list[0];
    list_ = p_.rung.routes ? shared_.choice.list : p_.expert_list + 1;
  }
  // After the block's outputs of the experts were sent.
  __device__ void end() {
    if (p_.rung.hands_over) gather<false>(Cells{rows}.sum(), 1, Place::sum);
    stamp(9);
    project();
    stamp(10);
    if (block_ != 0 || thread_ != 0) return;
    *p_.epoch = epoch_ + 1;
    *p_.live = count_;
  }

  __device__ void stamp(int i) const {
    if (p_.stamps != nullptr && thread_ == 0) p_.stamps[block_ * stamps + i] = clock64();
  }
  __device__ void stamp_place() const {
    if (p_.stamps == nullptr || thread_ != 0) return;
    unsigned place;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(place));
    p_.stamps[block_ * stamps + place_stamp] = place;
  }
  __device__ static void join() {
    __syncwarp();
    kernels::cuda::named_barrier(consumer_barrier, consumers);
  }
  __device__ void log(int at, std::uint32_t word) const {
    if (p_.log != nullptr) p_.log[at] = word;
  }
  // A word for all blocks; `size` words on lies the next copy.
  __device__ void put(int at, int size, std::uint32_t word) const {
#pragma unroll 1
    for (int i = 0; i < p_.rung.copies; ++i) store_cell(cells_ + at + i * size, word);
  }
  __device__ const std::uint32_t* own_copy(int at, int size) const {
    return cells_ + at + block_ % p_.rung.copies * size;
  }

  // ---- products ----
  // Takes `count` stages, multiplies and releases them.
  template <int count, class Next, class Multiply>
  __device__ void use(const Next& next, const Multiply& multiply) {
    int slots[count];
    Stages<count> stages;
#pragma unroll
    for (int i = 0; i < count; ++i) slots[i] = next();
#pragma unroll
    for (int i = 0; i < count; ++i) stages[i] = slots_.take(slots[i], watch_);
    if constexpr (computes) multiply(stages);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (l_.lane == 0) slots_.release(slots[i]);
    }
  }
  template <int count, class Multiply>
  __device__ void use(const Multiply& multiply) {
    use<count>([&] { return slots_.next(); }, multiply);
  }
  __device__ Inputs inputs() const {
    return {l_.group() < rows ? buffers_.x[l_.group()] + 4 * l_.quad() : nullptr};
  }
  // gate_up of the next `count` row tiles.
  template <int count>
  __device__ void multiply_gate_up(Sums (&sums)[count]) {
    const Inputs x = inputs();
    if constexpr (Format::gate_up_stages == 1) {
      use<count>([&](const Stages<count>& s) { Products::gate_up(s, x, l_, sums); });
    } else {
#pragma unroll
      for (int i = 0; i < count * projection_stages; i += 2)
        multiply_two(i % projection_stages, x, sums[i / projection_stages],
                     [&] { return slots_.next(); });
    }
  }
  // Stages i and i + 1 of a row tile of bf16 with `hidden` inputs.
  template <class Next>
  __device__ void multiply_two(int i, const Inputs& x, Sums& sums, const Next& next) {
    constexpr int step = stage_tiles / consumer_warps;
    use<2>(next, [&](const Stages<2>& s) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int first = (i + n) * stage_tiles + step * l_.warp;
        multiply_bf16<step>(
            s[n], [&](int k) { return x(first + k); }, l_, sums);
      }
    });
  }
  __device__ void store_sums(int item, const Sums& sums) {
    if constexpr (computes) {
      auto& to = buffers_.sums[item][l_.warp];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 2 * l_.quad() + i % 2;
        if (row < rows) to[row][l_.group() + i / 2 * 8] = sums.at(i);
      }
    }
  }
  // The sum of the warps, in their order.
  __device__ float joined(int item, int row, int at) const {
    if constexpr (!computes) return 0;
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < consumer_warps; ++warp) sum += buffers_.sums[item][warp][row][at];
    return sum;
  }
  __device__ float scale_of(int which, int row) const {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < consumer_warps; ++warp) sum += shared_.squares[which][row][warp];
    return rsqrtf(sum / hidden + norm_eps);
  }
  // Adds to the block's outputs and writes them for all blocks. By the first tile * rows threads.
  __device__ void send_own(int cells, int log_at, float value, bool keep) {
    const int row = thread_ / tile;
    const int at = row * hidden + tile * block_ + thread_ % tile;
    own_x_ += value;
    put(cells + at, rows * hidden, __float_as_uint(own_x_));
    log(log_at + at, __float_as_uint(own_x_));
    if (keep) p_.residual[at] = own_x_;
  }

  const HalfStep& p_;
  Slots slots_;
  Shared<rows>& shared_;
  Buffers<rows>& buffers_;
  Watch watch_;
  int thread_;
  int block_;
  int blocks_;
  Lane l_;
  std::uint32_t epoch_ = 0;
  std::uint32_t* cells_ = nullptr;
  float own_x_ = 0;  // of the block's rows of x
  uint2 expert_norm_[2];
  const int* list_ = nullptr;
  int count_ = 0;

 private:
  // Inputs 4 (thread + consumers i) and the next three.
  __device__ uint2 own_inputs(const Bf16* row, int i) const {
    return reinterpret_cast<const uint2*>(row)[thread_ + consumers * i];
  }
  __device__ int own_expert(int i) const { return block_ + i * blocks_; }

  // What no other kernel writes.
  __device__ void read_constants() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      expert_norm_[i] = own_inputs(p_.weights.expert_norm, i);
      reinterpret_cast<uint2*>(buffers_.projection_norm)[thread_ + consumers * i] =
          own_inputs(p_.weights.projection_norm, i);
#pragma unroll
      for (int e = 0; e < block_logits; ++e) {
        if (own_expert(e) < all_experts)
          router_[e][i] =
              own_inputs(p_.weights.router + static_cast<std::size_t>(own_expert(e)) * hidden, i);
      }
    }
  }
  // Clears the other set of cells, which the launch before used.
  __device__ void open() {
    epoch_ = load_relaxed(p_.epoch);
    const int words = Cells{rows}.words();
    cells_ = p_.cells + (epoch_ % 2) * words;
    std::uint32_t* const other = p_.cells + ((epoch_ + 1) % 2) * words;
#pragma unroll 1
    for (int i = block_ * consumers + thread_; i < words; i += blocks_ * consumers)
      other[i] = no_value;
    if (block_ < output_tiles && thread_ < tile * rows)
      own_x_ = __uint_as_float(load_relaxed(reinterpret_cast<const std::uint32_t*>(
          p_.residual + thread_ / tile * hidden + tile * block_ + thread_ % tile)));
  }

  // A warp's inputs of the output projection. All lanes hold some, also those whose columns of the
  // tensor core's operand have no row.
  template <int count>
  struct OutputInputs {
    static constexpr int spread = 8 / rows;
    static constexpr int step = stage_tiles / consumer_warps;
    uint2 own[count / spread];
    Lane l;
    __device__ OutputInputs(const Bf16* projections, const Lane& lane) : own{}, l(lane) {
      if constexpr (computes) {
        const Bf16* const row = projections + l.group() % rows * projected + 4 * l.quad();
#pragma unroll
        for (int i = 0; i < count / spread; ++i) {
          const int n = i * spread + l.group() / rows;
          const int at = n / step * stage_tiles + l.warp * step + n % step;
          own[i] = load_relaxed(reinterpret_cast<const uint2*>(row + tile * at));
        }
      }
    }
    __device__ uint2 operator()(int n) const {
      const int from = 4 * (n % spread * rows + l.group() % rows) + l.quad();
      const uint2 v = {__shfl_sync(all_lanes, own[n / spread].x, from),
                       __shfl_sync(all_lanes, own[n / spread].y, from)};
      return l.group() < rows ? v : uint2{};
    }
  };

  __device__ void output() {
    if (block_ >= output_tiles) return;
    constexpr int step = stage_tiles / consumer_warps;
    const OutputInputs<output_stages * step> x(p_.projections, l_);
    Sums sums;
#pragma unroll
    for (int i = 0; i < output_stages; i += 2)
      use<2>([&](const Stages<2>& s) {
#pragma unroll
        for (int n = 0; n < 2; ++n)
          multiply_bf16<step>(
              s[n], [&](int k) { return x(step * (i + n) + k); }, l_, sums);
      });
    if (!p_.rung.hands_over) return;
    store_sums(0, sums);
    join();
    if (thread_ < tile * rows)
      send_own(Cells{rows}.x(), Log{rows}.x(), joined(0, thread_ / tile, thread_ % tile), false);
  }

  __device__ void project() {
    const ProjectionStages stages(p_.weights);
    int at = 0;
    const auto next_slot = [&] {
      const int i = at++;
      return i < p_.rung.ahead ? i : slots_.next();
    };
    const int items = stages.tiles() + stages.units();
    const Inputs x = inputs();
#pragma unroll 1
    for (int item = 0; item < items; ++item) {
      Sums sums;
      if (item < stages.tiles()) {
#pragma unroll
        for (int i = 0; i < projection_stages; i += 2) multiply_two(i, x, sums, next_slot);
      } else {
        use<unit_stages>(next_slot, [&](const Stages<unit_stages>& s) {
#pragma unroll
          for (int n = 0; n < unit_stages; ++n) multiply_unit_half(n, s[n], x, sums);
        });
      }
      store_sums(item, sums);
    }
    if constexpr (!computes) return;
    join();
#pragma unroll 1
    for (int i = thread_; i < items * rows * tile; i += consumers) {
      const int item = i / (rows * tile);
      const int row = i / tile % rows;
      if (item >= stages.tiles() && i % tile >= 8) continue;
      const Bf16 value = __float2bfloat16_rn(scale_of(1, row) * joined(item, row, i % tile));
      const int to = row * projected + stages.first_row(item) + i % tile;
      p_.projections[to] = value;
      log(Log{rows}.out() + to, __bfloat16_as_ushort(value));
    }
  }
  // A warp's tiles of k in a stage of a unit: those that it has in the two stages of a row tile.
  __device__ void multiply_unit_half(int stage, const unsigned char* data, const Inputs& x,
                                     Sums& sums) {
    multiply_unit(
        data, [&](int k) { return x(stage * 2 * stage_tiles + 8 * l_.warp + k); }, l_, sums);
  }

  // ---- hand-overs ----
  // Waits for x and puts x times the norm's weight into shared memory in bf16; the norm's scale
  // multiplies the products. `routes`: also the logits of this block's experts.
  template <bool routes>
  __device__ void gather(int cells, int which, Place place) {
    uint4 v[2 * rows];
    read_cells(v, reinterpret_cast<const uint4*>(own_copy(cells, rows * hidden)) + thread_,
               consumers, p_.rung.pause_ns, watch_, place,
               [](int, const uint4& words) { return is_written(words); });
#pragma unroll
    for (int row = 0; row < rows; ++row) {
      float square = 0;
      float dot[block_logits] = {};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4& words = v[2 * row + i];
        const float values[] = {__uint_as_float(words.x), __uint_as_float(words.y),
                                __uint_as_float(words.z), __uint_as_float(words.w)};
        const uint2 norm = routes ? expert_norm_[i] : own_inputs(buffers_.projection_norm, i);
        const uint2 out = {rounded(values[0] * number(norm, 0), values[1] * number(norm, 1)),
                           rounded(values[2] * number(norm, 2), values[3] * number(norm, 3))};
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          square = fmaf(values[k], values[k], square);
          if constexpr (routes) {
#pragma unroll
            for (int e = 0; e < block_logits; ++e)
              dot[e] = fmaf(number(out, k), number(router_[e][i], k), dot[e]);
          }
        }
        *reinterpret_cast<uint2*>(buffers_.x[row] + 4 * (thread_ + consumers * i)) = out;
      }
      square = kernels::cuda::warp_sum(square);
      if (l_.lane == 0) shared_.squares[which][row][l_.warp] = square;
      if constexpr (routes) {
#pragma unroll
        for (int e = 0; e < block_logits; ++e) {
          const float sum = kernels::cuda::warp_sum(dot[e]);
          if (l_.lane == 0) shared_.router[e][row][l_.warp] = sum;
        }
      }
    }
    join();
  }
  // By the last warp.
  __device__ void send_logits() {
    if (l_.warp != consumer_warps - 1 || l_.lane >= rows * block_logits) return;
    const int which = l_.lane / rows;
    const int row = l_.lane % rows;
    const int expert = own_expert(which);
    if (expert >= all_experts) return;
    float sum = 0;
    if constexpr (computes) {
#pragma unroll
      for (int warp = 0; warp < consumer_warps; ++warp) sum += shared_.router[which][row][warp];
      sum *= scale_of(0, row);
    } else {
      sum = p_.logits[row * all_experts + expert];
    }
    put(Cells{rows}.logits() + row * logits_pitch + expert, rows * logits_pitch,
        __float_as_uint(sum));
    log(Log{rows}.logits() + row * all_experts + expert, __float_as_uint(sum));
  }
  // The shared expert's logit.
  __device__ float read_gate(const std::uint32_t* logits) {
    if constexpr (shared_experts == 0) return 0;
    uint4 v[1];
    read_cells(v, reinterpret_cast<const uint4*>(logits + experts), 0, p_.rung.pause_ns, watch_,
               Place::logits, [](int, const uint4& words) { return words.x != no_value; });
    return __uint_as_float(v[0].x);
  }
  // The weights are written after the barrier for the producer; `join` follows before their use.
  __device__ void choose() {
    constexpr bool counts = rows == 1 && lane_logits == 4;
    const int row = counts ? 0 : l_.warp;
    const std::uint32_t* const logits =
        own_copy(Cells{rows}.logits(), rows * logits_pitch) + row * logits_pitch;
    Keys keys{};
    std::uint32_t bits = 0;
    if (row < rows) keys = read_keys(logits, l_.lane, p_.rung.pause_ns, watch_);
    stamp(4);
    if constexpr (counts) {
      shared_.choice.ranks[l_.warp][l_.lane] = count_better(keys, l_.warp, l_.lane);
      join();
      std::uint32_t ranks = 0;
#pragma unroll
      for (int warp = 0; warp < consumer_warps; ++warp)
        ranks += shared_.choice.ranks[warp][l_.lane];
      bits = best_by_counts(ranks);
    } else {
      if (row < rows) bits = take_best(keys, l_.lane);
    }
    if (row < rows && (!counts || l_.warp == 0)) write_slots(shared_.choice, bits, row, l_.lane);
    if constexpr (rows > 1) {
      join();
      write_list(shared_.choice, thread_);
    }
    __syncwarp();
    if (p_.rung.routes) {
      kernels::cuda::named_barrier(choice_barrier, threads);
    } else {
      join();
    }
    if (row < rows && (!counts || l_.warp == 0))
      write_weights(shared_.choice, keys, bits, row, l_.lane, read_gate(logits));
  }

  uint2 router_[block_logits][2] = {};
};

}  // namespace motley::bench::HALF_STEP_NAMESPACE
