#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "engine/requests/sampling_params.h"
#include "grammar/grammar.h"

// What sampling should draw, computed from its definitions in float64 and with a sort, and whether
// draws follow it.
namespace motley::sampling_tests {

// A request as its next token is drawn.
struct Setting {
  engine::SamplingParams params = {};
  std::vector<std::int32_t> prompt = {0};
  std::vector<std::int32_t> answer = {};  // drawn so far
  std::vector<std::int32_t> end_ids = {};
  std::vector<std::int32_t> stop_ids = {};
  // The grammar, and the tokens that it allows behind the answer.
  std::optional<grammar::Grammar> grammar = {};
  std::function<bool(std::int32_t)> allowed = {};
};

// The probability of every token; docs/design/sampling.md has the definitions. All zero where no
// token is left.
std::vector<double> expected_probabilities(const std::vector<float>& logits,
                                           const Setting& setting);

// How probable draws are at least as far from the expectation as these: Pearson's chi-square,
// tokens that are expected less than ten times counted together. 0 where a token was drawn that
// can't be.
double chi_square_p(const std::vector<double>& probabilities, const std::vector<int>& seen);

// The upper tail of chi-square's distribution.
double chi_square_tail(double chi_square, int freedom);

}  // namespace motley::sampling_tests
