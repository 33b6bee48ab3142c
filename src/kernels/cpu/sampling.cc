#include "kernels/cpu/sampling.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/system/thread_pool.h"
#include "kernels/sampling_arithmetic.h"

namespace motley::kernels::sampling {
namespace {

// One row's work. `values` is [width] of scratch: logits first, then shares.
struct Row {
  const Sample& params;
  std::int64_t row;
  const SampleChoice& choice;
  std::span<const float> logits;
  std::span<float> values;
};

std::uint64_t best_rank(std::span<const float> values) {
  std::uint64_t best = 0;
  float largest = no_logit;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (best != 0 && !(values[i] > largest)) continue;
    largest = values[i];
    best = rank_of(values[i], static_cast<std::uint32_t>(i));
  }
  return best;
}

void write_top(const Row& row, float largest, std::uint64_t total) {
  std::array<std::uint64_t, max_top_log_probabilities> best{};
  const auto wanted = static_cast<std::size_t>(row.choice.top_log_probabilities);
  if (wanted == 0) return;
  std::size_t held = 0;
  for (std::size_t i = 0; i < row.values.size(); ++i) {
    const std::uint64_t rank = rank_of(row.values[i], static_cast<std::uint32_t>(i));
    if (held == wanted && rank < best[held - 1]) continue;
    std::size_t at = held < wanted ? held++ : held - 1;
    for (; at > 0 && best[at - 1] < rank; --at) best[at] = best[at - 1];
    best[at] = rank;
  }
  for (std::size_t i = 0; i < wanted; ++i) {
    const std::int64_t place = row.row * row.params.top_stride + static_cast<std::int64_t>(i);
    row.params.top_ids[place] = static_cast<std::int32_t>(id_of_rank(best[i]));
    row.params.top_log_probabilities[place] =
        log_probability(logit_of_rank(best[i]), largest, total);
  }
}

// The places of tokens in the order of all values, from 1 on. One pass counts, for each value, how
// many of the tokens it stands before.
void write_places(std::span<const float> values, std::span<const std::int32_t> ids,
                  std::int32_t* places) {
  const auto rank_at = [&](std::size_t i) {
    return rank_of(usable(values[i]), static_cast<std::uint32_t>(i));
  };
  std::array<std::uint64_t, max_named_log_probabilities> held{};
  const std::span<std::uint64_t> ranks = std::span(held).first(ids.size());
  for (std::size_t k = 0; k < ids.size(); ++k) ranks[k] = rank_at(static_cast<std::size_t>(ids[k]));
  std::ranges::sort(ranks);
  const auto below = [&](std::uint64_t rank) {
    return static_cast<std::size_t>(std::ranges::lower_bound(ranks, rank) - ranks.begin());
  };
  // Values that stand before exactly so many of them.
  std::array<std::int32_t, max_named_log_probabilities + 1> counts{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t rank = rank_at(i);
    if (rank > ranks[0]) ++counts[below(rank)];
  }
  for (std::size_t k = 0; k < ids.size(); ++k) {
    const std::size_t at = below(rank_at(static_cast<std::size_t>(ids[k])));
    places[k] = 1;
    for (std::size_t more = at + 1; more <= ids.size(); ++more) places[k] += counts[more];
  }
}

// Of a row's values.
struct Distribution {
  float largest = no_logit;
  std::uint64_t total = 1;
};

Distribution distribution_of(const Row& row) {
  const float largest = logit_of_rank(best_rank(row.values));
  if (largest == no_logit) return {};
  std::uint64_t total = 0;
  for (const float value : row.values) total += weight_of(share_of(value, largest, 1));
  return {.largest = largest, .total = total};
}

// What the choice asks of the tokens that it names, from the row's values.
void write_named(const Row& row, const Distribution& told) {
  const Sample& p = row.params;
  const std::int32_t begin = row.choice.named_begin;
  if (begin == row.choice.named_end) return;
  for (std::int32_t at = begin; at < row.choice.named_end; ++at)
    p.named_log_probabilities[at] = log_probability(
        row.values[static_cast<std::size_t>(p.named_ids[at])], told.largest, told.total);
  if (row.choice.ranked)
    write_places(row.values, {p.named_ids + begin, p.named_ids + row.choice.named_end},
                 p.named_ranks + begin);
}

void adjust(const Row& row) {
  const SampleChoice& choice = row.choice;
  const Sample& p = row.params;
  if (choice.mask_row >= 0) {
    const std::uint32_t* mask = p.masks + choice.mask_row * p.mask_stride;
    for (std::size_t i = 0; i < row.values.size(); ++i) {
      if (((mask[i / 32] >> (i % 32)) & 1U) == 0) row.values[i] = no_logit;
    }
  }
  for (std::int32_t i = choice.bias_begin; i < choice.bias_end; ++i) {
    float& value = row.values[static_cast<std::size_t>(p.bias_ids[i])];
    value = usable(value + p.biases[i]);
  }
  if (choice.counts_row < 0) return;
  const std::int32_t* counts = p.counts + choice.counts_row * p.counts_stride;
  for (std::size_t i = 0; i < row.values.size(); ++i)
    row.values[i] =
        penalised(row.values[i], counts[i], choice.repetition, choice.presence, choice.frequency);
}

// The cut after `wanted` tokens, or units of weight; the least cut where there are not as many. A
// histogram of the keys says in which bin it lies, one of that bin says it better.
Cut find_cut(std::span<const float> shares, Amount amount, std::uint64_t wanted) {
  std::uint64_t before = 0;
  KeyRange range;
  while (range.bits > 0) {
    std::array<std::uint64_t, max_bins> bins{};
    for (const float share : shares) {
      const std::uint32_t key = key_of(share);
      if (range.holds(key)) bins[range.bin_of(key)] += amount_of(share, amount);
    }
    std::uint32_t at = max_bins;
    while (at > 0 && before + bins[at - 1] < wanted) before += bins[--at];
    if (at == 0) return {};
    range = range.bin(at - 1);
  }
  return cut_at(range.low, before, amount, wanted);
}

// Converts logits to shares, and those of tokens that are not kept to 0.
void keep(const Row& row, float largest) {
  const SampleChoice& choice = row.choice;
  for (float& value : row.values) {
    const float share = share_of(value, largest, choice.inverse_temperature);
    value = share >= choice.min_p ? share : 0.0F;
  }
  const auto cut_after = [&](Amount amount, std::uint64_t wanted) {
    const Cut cut = find_cut(row.values, amount, wanted);
    std::uint64_t ties = 0;
    for (float& share : row.values) {
      const std::uint32_t key = key_of(share);
      if (key < cut.key || (key == cut.key && ties++ >= cut.ties)) share = 0;
    }
  };
  if (choice.top_k > 0 && choice.top_k < row.params.width)
    cut_after(Amount::tokens, static_cast<std::uint64_t>(choice.top_k));
  if (choice.top_p < 1) {
    std::uint64_t kept = 0;
    for (const float share : row.values) kept += weight_of(share);
    cut_after(Amount::weight, kept_weight(kept, choice.top_p));
  }
}

// The winner among the tokens that are kept. The most probable one, which always is, says how early
// others must arrive.
std::int32_t draw(const Row& row, std::uint32_t most_probable) {
  const Race race{row.choice.seed, row.choice.draw};
  const auto upper_word = [&](std::uint32_t id) { return race.upper(id / 4).of[id % 4]; };
  std::uint64_t first = race.arrival(most_probable, upper_word(most_probable), 1.0F);

  constexpr std::size_t groups = 8;  // whose numbers are made at once
  constexpr std::size_t block = 4 * groups;
  for (std::size_t begin = 0; begin < row.values.size(); begin += block) {
    const std::span<const float> shares =
        row.values.subspan(begin, std::min(block, row.values.size() - begin));
    if (std::ranges::none_of(shares, [](float share) { return share > 0; })) continue;
    std::array<Words, groups> words{};
    for (std::size_t group = 0; group < groups; ++group)
      words[group] = race.upper(static_cast<std::uint32_t>(begin / 4 + group));
    for (std::size_t i = 0; i < shares.size(); ++i) {
      const std::uint32_t upper = words[i / 4].of[i % 4];
      if (shares[i] == 0 || !may_arrive_by(time_of_arrival(first), upper, shares[i])) continue;
      first =
          std::min(first, race.arrival(static_cast<std::uint32_t>(begin + i), upper, shares[i]));
    }
  }
  return static_cast<std::int32_t>(id_of_arrival(first));
}

void sample_row(const Row& row) {
  const Sample& p = row.params;
  // Without a branch, so that the compiler makes vectors of it.
  std::uint32_t odd = 0;
  std::uint32_t chances = 0;
  for (std::size_t i = 0; i < row.values.size(); ++i) {
    const float logit = row.logits[i];
    odd |= is_logit(logit) ? 0U : 1U;
    chances |= logit > no_logit ? 1U : 0U;
    row.values[i] = usable(logit);
  }
  const bool finite = odd == 0 && chances != 0;
  Distribution told;
  const bool asks = row.choice.top_log_probabilities >= 0;
  const auto tell = [&] {
    told = distribution_of(row);
    write_top(row, told.largest, told.total);
    write_named(row, told);
  };
  if (asks && !row.choice.processed) tell();
  adjust(row);
  const std::uint64_t best = best_rank(row.values);
  const float largest = logit_of_rank(best);
  std::int32_t id = finite ? no_token_left : logits_not_finite;
  if (finite && largest != no_logit) {
    id = static_cast<std::int32_t>(id_of_rank(best));
    if (row.choice.inverse_temperature != 0) {
      keep(row, largest);
      id = draw(row, id_of_rank(best));
      if (asks && row.choice.processed)
        std::ranges::transform(row.values, row.values.begin(), logit_of_share);
    }
  }
  p.ids[row.row] = id;
  if (asks) {
    if (row.choice.processed) tell();
    const std::span<const float> of = row.choice.processed ? row.values : row.logits;
    const float logit = id < 0 ? no_logit : usable(of[static_cast<std::size_t>(id)]);
    p.log_probabilities[row.row] = log_probability(logit, told.largest, told.total);
    if (row.choice.ranked) p.ranks[row.row] = 0;
    if (row.choice.ranked && id >= 0) write_places(of, {&id, 1}, p.ranks + row.row);
  }
  if (row.choice.counts_row >= 0 && id >= 0)
    p.counts[row.choice.counts_row * p.counts_stride + id] += 2;
}

std::int64_t tasks(std::int64_t rows, StreamHandle stream) {
  const auto* pool = static_cast<const ThreadPool*>(stream.native);
  return std::min<std::int64_t>(rows, pool == nullptr ? 1 : pool->size());
}

}  // namespace
}  // namespace motley::kernels::sampling

namespace motley::kernels::cpu {

std::int64_t sample_scratch_bytes(std::int64_t rows, std::int64_t width, StreamHandle stream) {
  return sampling::tasks(rows, stream) * width * static_cast<std::int64_t>(sizeof(float));
}

void sample(const Sample& params, StreamHandle stream) {
  const std::int64_t count = sampling::tasks(params.rows, stream);
  const auto width = static_cast<std::size_t>(params.width);
  const auto task = [&](std::int64_t index) {
    const std::span values(static_cast<float*>(params.scratch) + index * params.width, width);
    for (std::int64_t row = index; row < params.rows; row += count) {
      sampling::sample_row({.params = params,
                            .row = row,
                            .choice = params.choices[row],
                            .logits = {params.logits + row * params.logits_stride, width},
                            .values = values});
    }
  };
  auto* pool = static_cast<ThreadPool*>(stream.native);
  if (pool != nullptr) {
    pool->for_tasks(count, task);
  } else if (count > 0) {
    task(0);
  }
}

void count_tokens(const CountTokens& params, StreamHandle) {
  std::fill_n(params.counts, params.width, 0);
  for (std::int64_t i = 0; i < params.prompt; ++i) params.counts[params.tokens[i]] = 1;
  for (std::int64_t i = params.prompt; i < params.prompt + params.generated; ++i)
    params.counts[params.tokens[i]] += 2;
}

}  // namespace motley::kernels::cpu
