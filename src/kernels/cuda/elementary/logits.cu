#include <cstdint>

#include "kernels/cuda/elementary/elementary.h"
#include "kernels/cuda/primitives/exponential.cuh"
#include "kernels/cuda/primitives/launch.cuh"

// Log-probabilities and top-k of rows of logits: one block per row.
namespace motley::kernels::cuda {
namespace {

constexpr unsigned everyone = 0xFFFFFFFFU;
constexpr int threads = 1024;
constexpr int warps = threads / 32;

// The largest number of the block; NaN is ignored.
__device__ float largest_of_block(float value, float* warp_values) {
  for (int step = 16; step > 0; step /= 2)
    value = fmaxf(value, __shfl_xor_sync(everyone, value, step));
  if (threadIdx.x % 32 == 0) warp_values[threadIdx.x / 32] = value;
  __syncthreads();
  value = warp_values[0];
  for (int i = 1; i < warps; ++i) value = fmaxf(value, warp_values[i]);
  return value;
}

// The order of sums is the CPU's: 16 lanes sum a run of 1024, and runs are added in order in
// float64.
constexpr int lanes = 16;
constexpr int run = 1024;
constexpr int runs_at_once = threads / lanes;

__device__ float sum_of_run(const float* logits, std::int64_t first, std::int64_t width,
                            float most) {
  const std::int64_t stop = min(first + run, width);
  float sum = 0;
  for (std::int64_t i = first + threadIdx.x % lanes; i < stop; i += lanes)
    sum += exponential(logits[i] - most);
  sum += __shfl_xor_sync(everyone, sum, 8);
  sum += __shfl_xor_sync(everyone, sum, 4);
  sum += __shfl_xor_sync(everyone, sum, 2);
  sum += __shfl_xor_sync(everyone, sum, 1);
  return sum;
}

// Of a warp's part of the row: larger logits than that of `id`, and equal ones with lower ids.
__device__ int count_before(const float* logits, std::int64_t width, std::int32_t id) {
  const float own = logits[id];
  int count = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += threads)
    count += logits[i] > own || (logits[i] == own && i < id) ? 1 : 0;
  return static_cast<int>(__reduce_add_sync(everyone, static_cast<unsigned>(count)));
}

__global__ void __launch_bounds__(threads) log_probabilities_of_row(LogProbabilities p) {
  __shared__ float warp_values[warps];
  __shared__ float run_sums[runs_at_once];
  __shared__ double log_total;
  launch_dependents();
  wait_for_previous_grid();
  const std::int64_t row = blockIdx.x;
  const float* const logits = p.logits + row * p.logits_stride;
  float most = -INFINITY;
  for (std::int64_t i = threadIdx.x; i < p.width; i += threads)
    most = fmaxf(most, isnan(logits[i]) ? INFINITY : logits[i]);
  most = largest_of_block(most, warp_values);
  // A row with NaN or infinity, or with minus infinity only, has no distribution.
  if (isinf(most)) {
    for (std::int64_t i = threadIdx.x; i < p.chosen; i += threads) {
      p.out[row * p.chosen + i] = NAN;
      if (p.ranks != nullptr) p.ranks[row * p.chosen + i] = 0;
    }
    return;
  }
  double total = 0;
  for (std::int64_t base = 0; base < p.width; base += std::int64_t{run} * runs_at_once) {
    const int mine = static_cast<int>(threadIdx.x) / lanes;
    const float sum = sum_of_run(logits, base + std::int64_t{mine} * run, p.width, most);
    if (threadIdx.x % lanes == 0) run_sums[mine] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int i = 0; i < runs_at_once && base + std::int64_t{i} * run < p.width; ++i)
        total += static_cast<double>(run_sums[i]);
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) log_total = log(total);
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < p.chosen; i += threads) {
    const auto logit = static_cast<double>(logits[p.ids[row * p.chosen + i]]);
    p.out[row * p.chosen + i] = static_cast<float>(logit - static_cast<double>(most) - log_total);
  }
  if (p.ranks == nullptr) return;
  __shared__ int before;
  for (std::int64_t at = row * p.chosen; at < (row + 1) * p.chosen; ++at) {
    __syncthreads();
    if (threadIdx.x == 0) before = 0;
    __syncthreads();
    const int mine = count_before(logits, p.width, p.ids[at]);
    if (threadIdx.x % 32 == 0) atomicAdd(&before, mine);
    __syncthreads();
    if (threadIdx.x == 0) p.ranks[at] = before + 1;
  }
}

// Maps each place of a row to a number of its own that falls in the order of choice: by value, then
// by id. No place has 0.
__device__ std::uint64_t rank_of(float value, std::int64_t id) {
  std::uint32_t key = 0;
  if (!isnan(value)) {
    const std::uint32_t bits = __float_as_uint(value + 0.0F);  // -0 is +0
    key = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  }
  return std::uint64_t{key} << 32 | ~static_cast<std::uint32_t>(id);
}

constexpr int max_at_once = threads;
constexpr int digits = 256;

// Shared by the block.
struct Choice {
  int counts[digits];
  std::uint64_t ranks[max_at_once];
  std::uint64_t prefix;
  int wanted;
  int taken;
  bool exact;
};

// Called by the first warp. Finds the digit at which the count from above reaches `wanted`.
__device__ void choose_digit(Choice& choice, int shift) {
  const int lane = static_cast<int>(threadIdx.x);
  constexpr int each = digits / 32;
  // Lane 0 has the highest digits.
  const int top = digits - 1 - lane * each;
  int mine = 0;
  for (int i = 0; i < each; ++i) mine += choice.counts[top - i];
  int through = mine;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(everyone, through, step);
    if (lane >= step) through += other;
  }
  int above = through - mine;
  const int wanted = choice.wanted;
  __syncwarp();
  if (above >= wanted || through < wanted) return;
  for (int i = 0; i < each; ++i) {
    const int count = choice.counts[top - i];
    if (above + count >= wanted) {
      choice.prefix |= std::uint64_t(static_cast<unsigned>(top - i)) << shift;
      choice.wanted = wanted - above;
      choice.exact = wanted - above == count;
      return;
    }
    above += count;
  }
}

// The smallest rank among the `wanted` largest below `bound`, or a number between it and the next.
__device__ std::uint64_t smallest_chosen(const TopK& p, const float* x, std::uint64_t bound,
                                         int wanted, Choice& choice) {
  if (threadIdx.x == 0) {
    choice.prefix = 0;
    choice.wanted = wanted;
    choice.exact = false;
  }
  for (int shift = 56; shift >= 0; shift -= 8) {
    for (int i = static_cast<int>(threadIdx.x); i < digits; i += threads) choice.counts[i] = 0;
    __syncthreads();
    const std::uint64_t prefix = choice.prefix;
    // The bits above the digit; none for the first digit.
    const int above = shift + 8;
    for (std::int64_t i = threadIdx.x; i < p.width; i += threads) {
      const std::uint64_t rank = rank_of(x[i], i);
      if (rank >= bound || (above < 64 && rank >> above != prefix >> above)) continue;
      atomicAdd(&choice.counts[rank >> shift & 255], 1);
    }
    __syncthreads();
    if (threadIdx.x < 32) choose_digit(choice, shift);
    __syncthreads();
    if (choice.exact) break;
  }
  return choice.prefix;
}

__global__ void __launch_bounds__(threads) largest_of_row(TopK p) {
  __shared__ Choice choice;
  launch_dependents();
  wait_for_previous_grid();
  const std::int64_t row = blockIdx.x;
  const float* const x = p.x + row * p.x_stride;
  std::uint64_t bound = ~std::uint64_t{0};
  for (std::int64_t done = 0; done < p.k; done += max_at_once) {
    const int wanted = static_cast<int>(min(p.k - done, std::int64_t{max_at_once}));
    const std::uint64_t least = smallest_chosen(p, x, bound, wanted, choice);
    if (threadIdx.x == 0) choice.taken = 0;
    __syncthreads();
    for (std::int64_t i = threadIdx.x; i < p.width; i += threads) {
      const std::uint64_t rank = rank_of(x[i], i);
      if (rank < bound && rank >= least) choice.ranks[atomicAdd(&choice.taken, 1)] = rank;
    }
    __syncthreads();
    const int mine = static_cast<int>(threadIdx.x);
    std::uint64_t smallest = ~std::uint64_t{0};
    int place = 0;
    for (int i = 0; i < wanted; ++i) {
      const std::uint64_t rank = choice.ranks[i];
      if (mine < wanted && rank > choice.ranks[mine]) ++place;
      smallest = min(smallest, rank);
    }
    if (mine < wanted) {
      const auto id = static_cast<std::int32_t>(~static_cast<std::uint32_t>(choice.ranks[mine]));
      const std::int64_t to = row * p.k + done + place;
      p.ids[to] = id;
      if (p.values != nullptr) p.values[to] = x[id];
    }
    bound = smallest;
    __syncthreads();
  }
}

}  // namespace

void log_probabilities(const LogProbabilities& p, StreamHandle stream) {
  launch("log_probabilities", log_probabilities_of_row,
         {.grid = static_cast<unsigned>(p.rows), .threads = threads}, stream, p);
}

void top_k(const TopK& p, StreamHandle stream) {
  launch("top_k", largest_of_row, {.grid = static_cast<unsigned>(p.rows), .threads = threads},
         stream, p);
}

}  // namespace motley::kernels::cuda
