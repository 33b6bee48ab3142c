#pragma once

#include <cstdint>

// How a row of logits becomes a token. docs/design/sampling.md has the definitions; the arithmetic
// that both devices share is in sampling_arithmetic.h.
namespace motley::kernels {

// The widest vocabulary: a row's weights are summed in 64 bits.
inline constexpr std::int64_t max_sampled_width = std::int64_t{1} << 20;

// What stands for a token where there is none.
inline constexpr std::int32_t no_token_left = -1;  // mask and biases rule every token out
// A logit is NaN or infinity, or all are minus infinity: the model's numbers have overflowed, and
// what could be drawn means nothing.
inline constexpr std::int32_t logits_not_finite = -2;

// The most top log-probabilities of a row.
inline constexpr std::int32_t most_top_log_probabilities = 64;

// What one row wants. As it stands, it takes the most probable token and asks for nothing else.
struct SampleChoice {
  float inverse_temperature = 0;  // 0: the most probable token; else finite
  std::int32_t top_k = 0;         // 0: all
  float top_p = 1;                // in (0, 1]
  float min_p = 0;                // in [0, 1], of the most probable token's probability
  float repetition = 1;           // > 0
  float presence = 0;
  float frequency = 0;
  std::int32_t counts_row = -1;  // of Sample::counts; negative: no penalties
  std::int32_t mask_row = -1;    // of Sample::masks; negative: every token
  std::int32_t bias_begin = 0;   // of Sample::bias_ids
  std::int32_t bias_end = 0;
  std::int32_t top_log_probabilities = -1;  // 0: the token's own only; negative: none at all
  std::uint64_t seed = 0;
  std::uint64_t draw = 0;  // which draw of this seed
};

// ids[r] = a token of row r, `no_token_left` or `logits_not_finite`. A row's answer depends on that
// row and its choice alone, and is the same on every device.
struct Sample {
  std::int64_t rows = 0;
  std::int64_t width = 0;  // the vocabulary
  const float* logits = nullptr;
  std::int64_t logits_stride = 0;
  const SampleChoice* choices = nullptr;  // [rows]

  // Bit i % 32 of word i / 32: token i may be chosen.
  const std::uint32_t* masks = nullptr;
  std::int64_t mask_stride = 0;  // in words

  // What count_tokens() makes of a sequence so far; the row's token is added to it.
  std::int32_t* counts = nullptr;
  std::int64_t counts_stride = 0;

  // Added to the logits; -infinity rules a token out. An id stands once in a row's part.
  const std::int32_t* bias_ids = nullptr;  // inside the vocabulary
  const float* biases = nullptr;

  std::int32_t* ids = nullptr;  // [rows]

  // Of the model's own distribution, before mask, bias, penalties and temperature; for rows that
  // ask. May be null if none does.
  float* log_probabilities = nullptr;      // [rows]
  std::int64_t top_stride = 0;             // of the two below
  std::int32_t* top_ids = nullptr;         // [rows, top_stride], falling; equal ones by rising id
  float* top_log_probabilities = nullptr;  // [rows, top_stride]

  void* scratch = nullptr;  // of sample_scratch_bytes()
};

// A token's count: how often it was generated, times two, plus one if it stands in the prompt.
struct CountTokens {
  std::int64_t width = 0;
  std::int32_t* counts = nullptr;        // [width], overwritten
  const std::int32_t* tokens = nullptr;  // [prompt + generated], inside the vocabulary
  std::int64_t prompt = 0;
  std::int64_t generated = 0;
};

}  // namespace motley::kernels
