#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/sampling/cut.cuh"
#include "kernels/cuda/sampling/part.cuh"
#include "kernels/cuda/sampling/sampling.h"
#include "kernels/sampling_arithmetic.h"

namespace motley::kernels::sampling {
namespace {

// The greatest of a thread's numbers so far; the first among equals.
struct Best {
  float value = no_logit;
  int place = 0;

  __device__ void take(float next, int at) {
    if (next > value) {
      value = next;
      place = at;
    }
  }
  __device__ std::uint64_t rank(const Part& part) const {
    return rank_of(value, static_cast<std::uint32_t>(part.begin + place));
  }
};

__device__ std::uint64_t best_rank(const Part& part) {
  Best best;
  part.read([&](float value, int i) { best.take(value, i); });
  return best.rank(part);
}
// The best among ranks below `limit`.
__device__ std::uint64_t best_rank_below(const Part& part, std::uint64_t limit) {
  std::uint64_t best = 0;
  part.read([&](float value, int i) {
    const std::uint64_t rank = rank_of(value, static_cast<std::uint32_t>(part.begin + i));
    if (rank < limit && rank > best) best = rank;
  });
  return best;
}

// Of a row's values.
struct Distribution {
  float largest = no_logit;
  std::uint64_t total = 1;
};

// Writes the tops, too.
__device__ Distribution distribution_of(Part& part, const Sample& p, const SampleChoice& choice,
                                        std::int64_t row) {
  std::uint64_t mine = best_rank_below(part, ~std::uint64_t{0});
  std::uint64_t best = fold_all(part, mine, Largest{});
  Distribution told;
  told.largest = logit_of_rank(best);
  if (told.largest != no_logit) {
    std::uint64_t weight = 0;
    part.read([&](float value, int) { weight += weight_of(share_of(value, told.largest, 1)); });
    told.total = fold_all(part, weight, Sum{});
  }
  for (int top = 0; top < choice.top_log_probabilities; ++top) {
    if (top > 0) best = fold_all(part, mine, Largest{});
    if (mine == best) {
      const std::int64_t place = row * p.top_stride + top;
      p.top_ids[place] = static_cast<std::int32_t>(id_of_rank(best));
      p.top_log_probabilities[place] =
          log_probability(logit_of_rank(best), told.largest, told.total);
      mine = best_rank_below(part, best);
    }
  }
  return told;
}

// The place of a token in the order of all logits, from 1 on. The part holds them if the choice is
// processed; otherwise it has changed, and they are read again.
__device__ std::int32_t place_of(Part& part, const SampleChoice& choice, const float* logits,
                                 std::int32_t id) {
  const auto rank_at = [&](int i) {
    const float logit = choice.processed ? part.values[i] : usable(logits[part.begin + i]);
    return rank_of(logit, static_cast<std::uint32_t>(part.begin + i));
  };
  const std::int64_t at = id - part.begin;
  const bool holds = part.thread == 0 && at >= 0 && at < part.count;
  const std::uint64_t own =
      fold_all(part, holds ? rank_at(static_cast<int>(at)) : std::uint64_t{0}, Largest{});
  std::uint64_t before = 0;
  for (int i = part.thread; i < part.count; i += threads) before += rank_at(i) > own ? 1 : 0;
  return static_cast<std::int32_t>(fold_all(part, before, Sum{})) + 1;
}

// Writes what the choice asks of the tokens that it names, from the values that the part holds.
__device__ void write_named(Part& part, const Sample& p, const SampleChoice& choice,
                            const Distribution& told) {
  const int count = choice.named_end - choice.named_begin;
  if (count == 0) return;
  const std::int32_t* const ids = p.named_ids + choice.named_begin;
  float* const logits = p.named_log_probabilities + choice.named_begin;  // until the ranks stand
  std::int32_t* const ranks = p.named_ranks + choice.named_begin;
  const auto for_held = [&](auto write) {
    for (int k = part.thread; k < count; k += threads) {
      const std::int64_t at = ids[k] - part.begin;
      if (at >= 0 && at < part.count) write(k, part.values[at]);
    }
  };
  if (choice.ranked) {
    for_held([&](int k, float value) {
      logits[k] = value;
      ranks[k] = 1;
    });
    part.cluster.sync();
    for (int k = 0; k < count; ++k) {
      const std::uint64_t own = rank_of(__ldcg(logits + k), static_cast<std::uint32_t>(ids[k]));
      unsigned before = 0;
      part.read([&](float value, int i) {
        before += rank_of(value, static_cast<std::uint32_t>(part.begin + i)) > own ? 1U : 0U;
      });
      before = __reduce_add_sync(everyone, before);
      if (part.thread % lanes == 0 && before > 0)
        atomicAdd(ranks + k, static_cast<std::int32_t>(before));
    }
    part.cluster.sync();  // others have read the logits
  }
  for_held(
      [&](int k, float value) { logits[k] = log_probability(value, told.largest, told.total); });
  __syncthreads();  // before their owners change the values
}

// Applies mask, biases and penalties. True if logits may have changed.
__device__ bool adjust(Part& part, const Sample& p, const SampleChoice& choice) {
  if (choice.mask_row >= 0) {
    // The mask's words do not align with vec4s, so one is read for each number; they are cached.
    const std::uint32_t* const mask = p.masks + choice.mask_row * p.mask_stride;
    part.rewrite([&](float value, int i) {
      const std::int64_t id = min(part.begin + i, p.width - 1);
      return ((mask[id / 32] >> (id % 32)) & 1U) != 0 ? value : no_logit;
    });
  }
  if (choice.bias_begin < choice.bias_end) {
    __syncthreads();
    for (int i = choice.bias_begin + part.thread; i < choice.bias_end; i += threads) {
      const std::int64_t at = p.bias_ids[i] - part.begin;
      if (at >= 0 && at < part.count) part.values[at] = usable(part.values[at] + p.biases[i]);
    }
    __syncthreads();
  }
  if (choice.counts_row >= 0) {
    const std::int32_t* const counts = p.counts + choice.counts_row * p.counts_stride;
    part.rewrite([&](float value, int i) {
      return penalised(value, counts[min(part.begin + i, p.width - 1)], choice.repetition,
                       choice.presence, choice.frequency);
    });
  }
  return choice.mask_row >= 0 || choice.bias_begin < choice.bias_end || choice.counts_row >= 0;
}

// Smaller shares round to 0.
constexpr float least_floor = 0x1p-43F;

// A lower bound of the `wanted` greatest shares: as many warps, or threads, of the cluster have a
// share that is at least as great.
__device__ float floor_of_tokens(Part& part, std::int32_t wanted, float largest_share) {
  std::uint32_t key = key_of(largest_share);
  if (wanted <= warps * part.blocks()) {
    key = __reduce_max_sync(everyone, key);
  } else if (wanted > threads * part.blocks()) {
    return least_floor;
  }
  // The minimum is found as the largest of 2^32 - 1 - key.
  key = ~static_cast<std::uint32_t>(fold_all(part, ~key, Largest{}));
  return key > 0 ? share_of_key(key) : least_floor;
}

// Tokens below this weigh less than `rest` together, the weight that top_p leaves out.
__device__ float floor_of_weight(std::uint64_t rest, std::int64_t width) {
  const std::uint64_t each = rest / static_cast<std::uint64_t>(width);
  return max(__ull2float_rd(each) / weight_one, least_floor);
}

// Converts logits to shares, and says where the cut lies among them.
__device__ Cut keep(Part& part, const Sample& p, const SampleChoice& choice, float largest) {
  const bool cuts_tokens = choice.top_k > 0 && choice.top_k < p.width;
  const bool cuts_weight = choice.top_p < 1;
  std::uint64_t weight = 0;
  float largest_share = 0;
  part.rewrite([&](float value, int) {
    const float share = share_of(value, largest, choice.inverse_temperature);
    const float left = share >= choice.min_p ? share : 0.0F;
    if (cuts_weight) weight += weight_of(left);
    largest_share = max(largest_share, left);
    return left;
  });
  Cut cut;
  // If all ties are kept, they need not be counted.
  const auto take = [&](const Found& found) {
    cut = found.cut;
    if (found.all_ties) cut.ties = Cut{}.ties;
  };
  const std::uint64_t total = cuts_weight ? fold_all(part, weight, Sum{}) : 0;
  std::uint64_t left = total;
  if (cuts_tokens) {
    const Found found = find_cut(part, Amount::tokens, static_cast<std::uint64_t>(choice.top_k),
                                 floor_of_tokens(part, choice.top_k, largest_share));
    if (found.cut.ties != Cut{}.ties) {
      take(found);
      if (cuts_weight) {
        std::uint64_t above = 0;
        part.read([&](float share, int) {
          if (key_of(share) > found.cut.key) above += weight_of(share);
        });
        left = kept_by(found.cut, fold_all(part, above, Sum{}));
      }
    }
  }
  if (cuts_weight) {
    const std::uint64_t wanted = kept_weight(left, choice.top_p);
    const Found found =
        find_cut(part, Amount::weight, wanted, floor_of_weight(total - wanted, p.width));
    if (found.cut.ties != Cut{}.ties) take(found);
  }
  return cut;
}

// The first id of the row whose token is behind the cut though its key is the cut's.
__device__ std::uint32_t end_of_ties(Part& part, const Cut& cut) {
  if (cut.ties == Cut{}.ties) return ~0U;
  // An odd distance between runs avoids bank conflicts.
  const int run = ((part.count + threads - 1) / threads) | 1;
  const int begin = min(part.thread * run, part.count);
  const int end = min(begin + run, part.count);
  std::uint64_t mine = 0;
#pragma unroll 4
  for (int i = begin; i < end; ++i) mine += key_of(part.values[i]) == cut.key ? 1 : 0;
  std::uint64_t before = sum_before_in_cluster(part, mine);
  std::uint64_t last = 0;
  if (before < cut.ties && before + mine >= cut.ties) {
    for (int i = begin; i < end && before < cut.ties; ++i) {
      if (key_of(part.values[i]) != cut.key) continue;
      last = static_cast<std::uint64_t>(part.begin + i);
      ++before;
    }
  }
  return static_cast<std::uint32_t>(fold_all(part, last, Largest{})) + 1;
}

// Converts shares to logits of the distribution that is drawn from.
__device__ void keep_as_logits(Part& part, const Cut& cut) {
  const std::uint32_t ties_end = end_of_ties(part, cut);
  __syncthreads();  // others have read their runs
  part.rewrite([&](float share, int i) {
    const std::uint32_t key = key_of(share);
    const bool kept =
        key > cut.key || (key == cut.key && static_cast<std::uint32_t>(part.begin + i) < ties_end);
    return kept ? logit_of_share(share) : no_logit;
  });
  __syncthreads();
}

// The winner among the tokens that are kept. The most probable one, which always is, says how early
// others must arrive.
__device__ std::int32_t draw(Part& part, const SampleChoice& choice, const Cut& cut,
                             std::uint32_t most_probable) {
  const std::uint32_t ties_end = end_of_ties(part, cut);
  const Race race{choice.seed, choice.draw};
  const auto word = [](const Words& words, std::uint32_t place) {
    const std::uint32_t even = place >= 2 ? words.of[2] : words.of[0];
    const std::uint32_t odd = place >= 2 ? words.of[3] : words.of[1];
    return place % 2 != 0 ? odd : even;
  };
  std::uint64_t first =
      race.arrival(most_probable, word(race.upper(most_probable / 4), most_probable % 4), 1.0F);
  for (int i = 4 * part.thread; i < part.count; i += 4 * threads) {
    const float4 vec4 = *reinterpret_cast<const float4*>(part.values + i);
    if (key_of(max(max(vec4.x, vec4.y), max(vec4.z, vec4.w))) < cut.key) continue;
    const auto id = static_cast<std::uint32_t>(part.begin + i);
    const Words upper = race.upper(id / 4);
    const float shares[] = {vec4.x, vec4.y, vec4.z, vec4.w};
#pragma unroll
    for (std::uint32_t j = 0; j < 4; ++j) {
      if (!may_arrive_by(time_of_arrival(first), upper.of[j], shares[j])) continue;
      const std::uint32_t key = key_of(shares[j]);
      if (key > cut.key || (key == cut.key && id + j < ties_end))
        first = min(first, race.arrival(id + j, upper.of[j], shares[j]));
    }
  }
  // The least is found as the largest of what is left to 2^64 - 1.
  return static_cast<std::int32_t>(id_of_arrival(~fold_all(part, ~first, Largest{})));
}

// Greater than any logit's rank.
constexpr std::uint64_t not_finite = ~std::uint64_t{0};

// Loads the row's part. Returns the best of this thread's numbers, or `not_finite`.
__device__ std::uint64_t load(Part& part, const float* logits) {
  const bool whole_fours = reinterpret_cast<std::uintptr_t>(logits) % sizeof(float4) == 0;
  Best best;
  bool finite = true;
#pragma unroll 5
  for (int i = 4 * part.thread; i < part.count; i += 4 * threads) {
    float4 vec4;
    if (whole_fours && i + 4 <= part.count) {
      vec4 = *reinterpret_cast<const float4*>(logits + i);
    } else {
      vec4.x = logits[i];
      vec4.y = i + 1 < part.count ? logits[i + 1] : no_logit;
      vec4.z = i + 2 < part.count ? logits[i + 2] : no_logit;
      vec4.w = i + 3 < part.count ? logits[i + 3] : no_logit;
    }
    finite = finite && is_logit(vec4.x) && is_logit(vec4.y) && is_logit(vec4.z) && is_logit(vec4.w);
    vec4 = {usable(vec4.x), usable(vec4.y), usable(vec4.z), usable(vec4.w)};
    *reinterpret_cast<float4*>(part.values + i) = vec4;
    best.take(vec4.x, i);
    best.take(vec4.y, i + 1);
    best.take(vec4.z, i + 2);
    best.take(vec4.w, i + 3);
  }
  return finite ? best.rank(part) : not_finite;
}

// Block (row, rank); the blocks of a row form a cluster.
template <bool in_shared>
__global__ void __launch_bounds__(threads, 2) sample_rows(const Sample p, const int part_width) {
  extern __shared__ float4 held[];
  __shared__ Shared shared;
  const std::int64_t row = blockIdx.x;
  const cg::cluster_group cluster = cg::this_cluster();
  const std::int64_t begin = std::int64_t{cluster.block_rank()} * part_width;
  float* values = reinterpret_cast<float*>(held);
  if constexpr (!in_shared) {
    values = static_cast<float*>(p.scratch) +
             (row * cluster.num_blocks() + cluster.block_rank()) * part_width;
  }
  Part part{.cluster = cluster,
            .shared = shared,
            .values = values,
            .begin = begin,
            .count = static_cast<int>(
                max(min(p.width - begin, std::int64_t{part_width}), std::int64_t{0})),
            .thread = static_cast<int>(threadIdx.x)};
  cuda::launch_dependents();
  cuda::wait_for_previous_grid();

  const SampleChoice choice = p.choices[row];
  const float* const logits = p.logits + row * p.logits_stride;
  const std::uint64_t raw = load(part, logits + begin);
  std::uint64_t mine = raw;
  Distribution told;
  const bool asks = choice.top_log_probabilities >= 0;
  const auto tell = [&] {
    told = distribution_of(part, p, choice, row);
    write_named(part, p, choice, told);
  };
  if (asks && !choice.processed) tell();
  if (adjust(part, p, choice) && raw != not_finite) mine = best_rank(part);
  const std::uint64_t best = fold_all(part, mine, Largest{});
  const bool finite = best != not_finite;
  const float largest = finite ? logit_of_rank(best) : no_logit;

  std::int32_t id = finite ? no_token_left : logits_not_finite;
  if (finite && largest == no_logit) {
    // Mask and biases have ruled out all that the model left, or the model left nothing.
    if (logit_of_rank(fold_all(part, raw, Largest{})) == no_logit) id = logits_not_finite;
  } else if (largest != no_logit && choice.inverse_temperature == 0) {
    id = static_cast<std::int32_t>(id_of_rank(best));
  } else if (largest != no_logit) {
    const Cut cut = keep(part, p, choice, largest);
    __syncthreads();
    id = draw(part, choice, cut, id_of_rank(best));
    if (asks && choice.processed) keep_as_logits(part, cut);
  }
  if (asks && choice.processed) tell();
  // The block that has the token's value writes what depends on it.
  const std::int64_t at = max(id, 0) - part.begin;
  if (asks && part.thread == 0 && at >= 0 && at < part.count) {
    const float logit = choice.processed ? part.values[at] : usable(logits[at + part.begin]);
    p.log_probabilities[row] = log_probability(id < 0 ? no_logit : logit, told.largest, told.total);
  }
  const bool ranked = asks && choice.ranked;
  const std::int32_t place = ranked && id >= 0 ? place_of(part, choice, logits, id) : 0;
  if (part.thread == 0 && part.rank() == 0) {
    p.ids[row] = id;
    if (ranked) p.ranks[row] = place;
    if (id >= 0 && choice.counts_row >= 0) p.counts[choice.counts_row * p.counts_stride + id] += 2;
  }
  cluster.sync();  // other blocks may still read this block's memory
}

__global__ void add_tokens(const CountTokens p) {
  const std::int64_t total = p.prompt + p.generated;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < total;
       i += stride) {
    std::int32_t* const count = p.counts + p.tokens[i];
    if (i < p.prompt) {
      atomicOr(count, 1);
    } else {
      atomicAdd(count, 2);
    }
  }
}

// The blocks of a row, and the numbers of each.
struct Cluster {
  unsigned blocks = 1;
  std::int64_t part_width = 0;

  static constexpr std::int64_t max_part_bytes =
      227 * 1024 - static_cast<int>(sizeof(Shared)) - 1024;

  bool in_shared() const { return part_bytes() <= max_part_bytes; }
  std::int64_t part_bytes() const { return part_width * static_cast<int>(sizeof(float)); }
};

Cluster cluster_for(std::int64_t width) {
  constexpr std::int64_t least_part = 2048;  // fewer numbers do not justify another block
  Cluster cluster;
  while (cluster.blocks < max_blocks && width > cluster.blocks * least_part) cluster.blocks *= 2;
  const std::int64_t vec4s = (width + 4 * cluster.blocks - 1) / (4 * cluster.blocks);
  cluster.part_width = 4 * vec4s;
  return cluster;
}

template <bool in_shared>
void launch_rows(const Sample& params, const Cluster& cluster, StreamHandle stream) {
  const cuda::LaunchShape shape{
      .grid = static_cast<unsigned>(params.rows),
      .grid_y = cluster.blocks,
      .threads = threads,
      .shared_bytes = in_shared ? static_cast<std::size_t>(cluster.part_bytes()) : 0,
      .cluster_y = cluster.blocks};
  cuda::launch("sample", sample_rows<in_shared>, shape, stream, params,
               static_cast<int>(cluster.part_width));
}

}  // namespace
}  // namespace motley::kernels::sampling

namespace motley::kernels::cuda {

Result<void> prepare_sampling() {
  using sampling::Cluster;
  return allow_shared_memory("sample", sampling::sample_rows<true>, Cluster::max_part_bytes);
}

std::int64_t sample_scratch_bytes(std::int64_t rows, std::int64_t width, StreamHandle) {
  const sampling::Cluster cluster = sampling::cluster_for(width);
  return cluster.in_shared() ? 0 : rows * cluster.blocks * cluster.part_bytes();
}

void sample(const Sample& params, StreamHandle stream) {
  const sampling::Cluster cluster = sampling::cluster_for(params.width);
  if (cluster.in_shared()) return sampling::launch_rows<true>(params, cluster, stream);
  MOTLEY_CHECK(params.scratch != nullptr, "scratch for a row that wide");
  sampling::launch_rows<false>(params, cluster, stream);
}

void count_tokens(const CountTokens& params, StreamHandle stream) {
  const auto bytes = static_cast<std::size_t>(params.width) * sizeof(std::int32_t);
  device_of(stream).keep(
      launched(cudaMemsetAsync(params.counts, 0, bytes, native(stream)), "count_tokens"));
  const std::int64_t tokens = params.prompt + params.generated;
  if (tokens == 0) return;
  constexpr int block = 256;
  const auto grid = static_cast<unsigned>(std::min<std::int64_t>((tokens + block - 1) / block, 64));
  sampling::add_tokens<<<grid, block, 0, native(stream)>>>(params);
  device_of(stream).keep(launched(cudaGetLastError(), "count_tokens"));
}

}  // namespace motley::kernels::cuda
