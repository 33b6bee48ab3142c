#pragma once

#include <cstdint>

#include "base/number_types.h"

// The arithmetic of sampling for every device, compiled without fused multiply-add, so that equal
// logits give equal bits. Where probabilities of a row are added, they become integers, whose sums
// do not depend on the order of addition. So a token is the same on a CPU, on a GPU and in any
// batch.
namespace motley::kernels::sampling {

inline constexpr float no_logit = -__builtin_huge_valf();

// A weight is a probability relative to the row's largest, in units of 2^-43; smaller ones cannot
// be drawn. 2^20 weights fit in 64 bits.
inline constexpr int weight_bits = 43;
inline constexpr float weight_one = 0x1p43F;

constexpr MOTLEY_HOST_DEVICE std::uint32_t bits_of(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}

// Whether it is a valid logit: minus infinity rules a token out; NaN and infinity mean that the
// model's numbers have overflowed.
constexpr MOTLEY_HOST_DEVICE bool is_logit(float value) { return value < __builtin_huge_valf(); }

// NaN rules a token out; infinity counts as the largest number.
constexpr MOTLEY_HOST_DEVICE float usable(float logit) {
  if (!(logit == logit)) return no_logit;
  return logit > 0x1.fffffep127F ? 0x1.fffffep127F : logit;
}

// A number that increases with (logit, -id): the largest is the most probable token, with the
// lowest id among equals. Never 0.
constexpr MOTLEY_HOST_DEVICE std::uint64_t rank_of(float logit, std::uint32_t id) {
  const std::uint32_t bits = bits_of(logit + 0.0F);  // -0 becomes +0
  const std::uint32_t order = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return (std::uint64_t{order} << 32) | (0xFFFFFFFFU - id);
}
constexpr MOTLEY_HOST_DEVICE std::uint32_t id_of_rank(std::uint64_t rank) {
  return 0xFFFFFFFFU - static_cast<std::uint32_t>(rank);
}
constexpr MOTLEY_HOST_DEVICE float logit_of_rank(std::uint64_t rank) {
  const auto order = static_cast<std::uint32_t>(rank >> 32);
  return __builtin_bit_cast(float, (order & 0x80000000U) != 0 ? order & 0x7FFFFFFFU : ~order);
}

// `count` is as in CountTokens.
constexpr MOTLEY_HOST_DEVICE float penalised(float logit, std::int32_t count, float repetition,
                                             float presence, float frequency) {
  if (count == 0) return logit;
  logit = logit > 0 ? logit / repetition : logit * repetition;
  if (count >= 2) logit = logit - frequency * static_cast<float>(count >> 1) - presence;
  return usable(logit);
}

// e^x for x <= 0; at most 1, within 2 units of the last place; 0 where e^x is below 2^-43.
constexpr MOTLEY_HOST_DEVICE float exp_of(float x) {
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
  const float shifted = x * 1.44269504F + 12582912.0F;
  const float n = shifted - 12582912.0F;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float sum = 1.0F / 5040;
  sum = sum * r + 1.0F / 720;
  sum = sum * r + 1.0F / 120;
  sum = sum * r + 1.0F / 24;
  sum = sum * r + 1.0F / 6;
  sum = sum * r + 0.5F;
  sum = sum * r + 1.0F;
  sum = sum * r + 1.0F;
  const std::uint32_t exponent = (bits_of(shifted) - 0x4B400000U + 127U) << 23;
  const float value = sum * __builtin_bit_cast(float, exponent);
  const float bounded = value < 1 ? value : 1.0F;
  return x > -29.80F ? bounded : 0.0F;
}

// A token's probability relative to the most probable one's, whose logit is `largest`.
constexpr MOTLEY_HOST_DEVICE float share_of(float logit, float largest, float inverse_temperature) {
  return exp_of((logit - largest) * inverse_temperature);
}

constexpr MOTLEY_HOST_DEVICE std::uint64_t weight_of(float share) {
  return static_cast<std::uint64_t>(share * weight_one);
}

// Shares as integers in the same order: 0 for 0, positive for results of exp_of().
inline constexpr std::uint32_t least_share_bits = std::uint32_t{127 - weight_bits} << 23;
inline constexpr std::uint32_t max_key = std::uint32_t{weight_bits} << 23;  // of 1
constexpr MOTLEY_HOST_DEVICE std::uint32_t key_of(float share) {
  return share > 0 ? bits_of(share) - least_share_bits : 0;
}
constexpr MOTLEY_HOST_DEVICE float share_of_key(std::uint32_t key) {
  return key > 0 ? __builtin_bit_cast(float, key + least_share_bits) : 0.0F;
}

// Keys [low, low + 2^bits), and their division into bins.
inline constexpr std::uint32_t max_bins = 1024;
struct KeyRange {
  std::uint32_t low = 1;
  int bits = 29;

  constexpr MOTLEY_HOST_DEVICE int shift() const { return bits > 10 ? bits - 10 : 0; }
  constexpr MOTLEY_HOST_DEVICE bool holds(std::uint32_t key) const {
    return key >= low && ((key - low) >> bits) == 0;
  }
  constexpr MOTLEY_HOST_DEVICE std::uint32_t bin_of(std::uint32_t key) const {
    return (key - low) >> shift();
  }
  constexpr MOTLEY_HOST_DEVICE KeyRange bin(std::uint32_t index) const {
    return {low + (index << shift()), shift()};
  }
};

// The weight that top_p keeps of the total: tokens are kept until those before them have this much.
constexpr MOTLEY_HOST_DEVICE std::uint64_t kept_weight(std::uint64_t total, float top_p) {
  const auto kept =
      static_cast<std::uint64_t>(static_cast<double>(top_p) * static_cast<double>(total));
  return kept > 0 ? kept : 1;
}

// Four random words that depend on seed, draw and place alone: Philox 4x32 with 10 rounds, its key
// the seed, its counter the others.
struct Words {
  std::uint32_t of[4];
};
constexpr MOTLEY_HOST_DEVICE Words random_words(std::uint64_t seed, std::uint64_t draw,
                                                std::uint64_t place) {
  auto key0 = static_cast<std::uint32_t>(seed);
  auto key1 = static_cast<std::uint32_t>(seed >> 32);
  std::uint32_t c0 = static_cast<std::uint32_t>(draw);
  std::uint32_t c1 = static_cast<std::uint32_t>(draw >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(place);
  std::uint32_t c3 = static_cast<std::uint32_t>(place >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53U} * c0;
    const std::uint64_t second = std::uint64_t{0xCD9E8D57U} * c2;
    c0 = static_cast<std::uint32_t>(second >> 32) ^ c1 ^ key0;
    c2 = static_cast<std::uint32_t>(first >> 32) ^ c3 ^ key1;
    c1 = static_cast<std::uint32_t>(second);
    c3 = static_cast<std::uint32_t>(first);
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}

// 64 random bits that depend on (seed, draw) alone.
constexpr MOTLEY_HOST_DEVICE std::uint64_t random_bits(std::uint64_t seed, std::uint64_t draw) {
  const Words words = random_words(seed, draw, 0);
  return (std::uint64_t{words.of[1]} << 32) | words.of[0];
}

// ln(number * 2^-shift) for number > 0, to the last place or two of a double: ln m = 2 artanh((m -
// 1) / (m + 1)) with m in [sqrt(1/2), sqrt(2)).
constexpr MOTLEY_HOST_DEVICE double log_of(std::uint64_t number, int shift) {
  const auto bits = __builtin_bit_cast(std::uint64_t, static_cast<double>(number));
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = __builtin_bit_cast(double, (bits & 0x000FFFFFFFFFFFFFU) | (std::uint64_t{1023} << 52));
  if (m > 1.4142135623730951) {
    m = m * 0.5;
    ++exponent;
  }
  const double s = (m - 1) / (m + 1);
  const double square = s * s;
  double series = 0;
  for (int odd = 23; odd >= 1; odd -= 2) series = series * square + 1.0 / odd;
  return static_cast<double>(exponent - shift) * 0.6931471805599453 + 2 * s * series;
}
constexpr MOTLEY_HOST_DEVICE double log_of_weights(std::uint64_t total) {
  return log_of(total, weight_bits);
}

// ln share, as a logit: 0 for the most probable token's.
constexpr MOTLEY_HOST_DEVICE float logit_of_share(float share) {
  if (!(share > 0)) return no_logit;
  const std::uint32_t bits = bits_of(share);
  const int exponent = static_cast<int>(bits >> 23) - 127;
  return static_cast<float>(log_of(std::uint64_t{(bits & 0x7FFFFFU) | 0x800000U}, 23 - exponent));
}

constexpr MOTLEY_HOST_DEVICE float log_probability(float logit, float largest,
                                                   std::uint64_t total) {
  if (logit == no_logit) return no_logit;
  return static_cast<float>(static_cast<double>(logit) - static_cast<double>(largest) -
                            log_of_weights(total));
}

// A cut of a row's tokens, ordered by falling share and rising id: tokens with a greater key are
// kept, and the first `ties` tokens with this key.
struct Cut {
  std::uint32_t key = 1;
  std::uint64_t ties = ~std::uint64_t{0};
};

// What a cut counts: tokens, or their weights.
enum class Amount : std::uint8_t { tokens, weight };

constexpr MOTLEY_HOST_DEVICE std::uint64_t amount_of(float share, Amount amount) {
  return amount == Amount::weight ? weight_of(share) : 1;
}

// The cut after `wanted`, where `before` lies before the first token of this key.
constexpr MOTLEY_HOST_DEVICE Cut cut_at(std::uint32_t key, std::uint64_t before, Amount amount,
                                        std::uint64_t wanted) {
  const std::uint64_t each = amount_of(share_of_key(key), amount);
  return {.key = key, .ties = (wanted - before + each - 1) / each};
}

// The weight that is kept, where `above` is the weight of all greater keys.
constexpr MOTLEY_HOST_DEVICE std::uint64_t kept_by(const Cut& cut, std::uint64_t above) {
  return above + cut.ties * weight_of(share_of_key(cut.key));
}

// A draw is a race of the tokens that are kept: each has an exponential number of its own, which
// depends on seed, draw and id alone, and arrives when that number has passed at the speed of its
// share. So a token wins as often as its share says, and small changes of the shares seldom change
// the winner.
struct Race {
  std::uint64_t seed = 0;
  std::uint64_t draw = 0;

  // Uniform 64 bits of an id: the upper words of ids [4 * group, 4 * group + 4), and an id's lower
  // word.
  constexpr MOTLEY_HOST_DEVICE Words upper(std::uint32_t group) const {
    return random_words(seed, draw, (std::uint64_t{1} << 32) | group);
  }
  constexpr MOTLEY_HOST_DEVICE std::uint32_t lower(std::uint32_t id) const {
    const Words words = random_words(seed, draw, (std::uint64_t{2} << 32) | (id / 4));
    const std::uint32_t even = (id & 2U) != 0 ? words.of[2] : words.of[0];
    const std::uint32_t odd = (id & 2U) != 0 ? words.of[3] : words.of[1];
    return (id & 1U) != 0 ? odd : even;
  }

  // Numbers that order tokens by arrival, equal ones by rising id: the least has won.
  constexpr MOTLEY_HOST_DEVICE std::uint64_t arrival(std::uint32_t id, std::uint32_t upper_word,
                                                     float share) const {
    const std::uint64_t uniform = (std::uint64_t{upper_word} << 32) | lower(id);
    const double exponential = 0.0 - log_of(~uniform | 1U, 64);
    const auto time = static_cast<float>(exponential / static_cast<double>(share));
    return (std::uint64_t{bits_of(time)} << 32) | id;
  }
};

constexpr MOTLEY_HOST_DEVICE std::uint32_t id_of_arrival(std::uint64_t arrival) {
  return static_cast<std::uint32_t>(arrival);
}
constexpr MOTLEY_HOST_DEVICE float time_of_arrival(std::uint64_t arrival) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(arrival >> 32));
}

// False where a token of this share, whose uniform number begins with this word, arrives after
// `time` for certain: an exponential number is no less than its uniform one. The factor is above
// any error of rounding.
constexpr MOTLEY_HOST_DEVICE bool may_arrive_by(float time, std::uint32_t upper_word, float share) {
  return static_cast<float>(upper_word) * 0x1.FFFF8p-33F <= time * share;
}

}  // namespace motley::kernels::sampling
