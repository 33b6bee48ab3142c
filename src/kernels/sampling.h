#pragma once

#include <cstdint>

// Samples a token from a row of logits. docs/design/sampling.md has the definitions, and
// sampling_arithmetic.h the arithmetic that both devices share.
namespace motley::kernels {

// The widest vocabulary, since a row's weights are summed in 64 bits.
inline constexpr std::int64_t max_sampled_width = std::int64_t{1} << 20;

// Results in place of a token:
inline constexpr std::int32_t no_token_left = -1;  // mask and biases rule every token out
// A logit is NaN or infinity, or all are minus infinity: the model's numbers have overflowed, and a
// drawn token would mean nothing.
inline constexpr std::int32_t logits_not_finite = -2;

// The most top log-probabilities of a row.
inline constexpr std::int32_t max_top_log_probabilities = 64;
// The most tokens of a row that are named.
inline constexpr std::int32_t max_named_log_probabilities = 128;

// The options of one row. By default it takes the most probable token and nothing else.
struct SampleChoice {
  float inverse_temperature = 0;  // 0: the most probable token; else finite
  std::int32_t top_k = 0;         // 0: all
  float top_p = 1;                // in (0, 1]
  float min_p = 0;                // in [0, 1], relative to the most probable token's probability
  float repetition = 1;           // > 0
  float presence = 0;
  float frequency = 0;
  std::int32_t counts_row = -1;  // of Sample::counts; negative: no penalties
  std::int32_t mask_row = -1;    // of Sample::masks; negative: every token
  std::int32_t bias_begin = 0;   // of Sample::bias_ids
  std::int32_t bias_end = 0;
  std::int32_t top_log_probabilities = -1;  // 0: the token's own only; negative: none at all
  std::int32_t named_begin = 0;  // of Sample::named_ids, if log-probabilities are requested
  std::int32_t named_end = 0;
  // Log-probabilities are those of the distribution that the token is drawn from: after mask, bias,
  // penalties and temperature, over the tokens that are kept. Without a temperature over all.
  bool processed = false;
  bool ranked = false;  // with ranks of the token and of named ones, if these are requested
  std::uint64_t seed = 0;
  std::uint64_t draw = 0;  // number of the draw for this seed
};

// ids[r] = a token of row r, `no_token_left` or `logits_not_finite`. The result depends only on the
// row and its choice, and is the same on every device.
struct Sample {
  std::int64_t rows = 0;
  std::int64_t width = 0;  // the vocabulary
  const float* logits = nullptr;
  std::int64_t logits_stride = 0;
  const SampleChoice* choices = nullptr;  // [rows]

  // Bit i % 32 of word i / 32: token i may be chosen.
  const std::uint32_t* masks = nullptr;
  std::int64_t mask_stride = 0;  // in words

  // Made by count_tokens() from a sequence so far; the row's token is added to it.
  std::int32_t* counts = nullptr;
  std::int64_t counts_stride = 0;

  // Added to the logits; -infinity rules a token out. Ids are unique within a row's part.
  const std::int32_t* bias_ids = nullptr;  // inside the vocabulary
  const float* biases = nullptr;

  std::int32_t* ids = nullptr;  // [rows]

  // For rows that request them. Of the model's own distribution, before mask, bias, penalties and
  // temperature, unless the choice is `processed`. May be null if no row does.
  float* log_probabilities = nullptr;  // [rows]
  // [rows]: the token's place in the order of the tops, from 1 on; 0 without a token. Written for
  // rows that are ranked.
  std::int32_t* ranks = nullptr;
  std::int64_t top_stride = 0;             // of the two below
  std::int32_t* top_ids = nullptr;         // [rows, top_stride], falling; equal ones by rising id
  float* top_log_probabilities = nullptr;  // [rows, top_stride]
  // Tokens that rows name, and what they get: log-probabilities and ranks as above, in the order of
  // the ids. May be null if no row names any.
  const std::int32_t* named_ids = nullptr;  // inside the vocabulary
  float* named_log_probabilities = nullptr;
  std::int32_t* named_ranks = nullptr;

  void* scratch = nullptr;  // of sample_scratch_bytes()
};

// A token's count: twice the times it was generated, plus one if it is in the prompt.
struct CountTokens {
  std::int64_t width = 0;
  std::int32_t* counts = nullptr;        // [width], overwritten
  const std::int32_t* tokens = nullptr;  // [prompt + generated], inside the vocabulary
  std::int64_t prompt = 0;
  std::int64_t generated = 0;
};

}  // namespace motley::kernels
