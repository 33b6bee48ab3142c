#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/grammar/grammar.h"

// Grammars are compiled and followed in processes of their own: what a client's grammar crashes,
// stalls or bloats is a helper that serves this grammar alone. The first helper holds the model's
// vocabulary and forks one for each grammar, so that the vocabulary is in memory once.
namespace motley::engine {

// What one grammar may take.
struct GrammarLimits {
  std::chrono::milliseconds compile_time{10'000};  // of processor time
  std::chrono::milliseconds mask_time{250};        // of processor time, for one mask
  // What its masks may take in all beyond so much a token, of processor time.
  std::chrono::milliseconds excess_time{2'000};
  std::chrono::milliseconds token_time{2};
  std::uint64_t memory = std::uint64_t{1} << 30;  // beside the vocabulary
};

// What the first helper is given.
struct GrammarHelperInput {
  GrammarTokens tokens;
  GrammarLimits limits;

  std::string write() const;
  static GrammarHelperInput read(std::string_view text);
};

// The argument that makes the program a helper, and the descriptors that it finds then.
inline constexpr std::string_view grammar_helper_argument = "--grammar-helper";
inline constexpr int grammar_helper_socket = 3;
inline constexpr int grammar_helper_input = 4;

// The first helper's life: forks a helper for each socket that comes over `socket`, and ends when
// the server does. `input`: a file that holds a GrammarHelperInput. The status of the process.
int run_grammar_helper(int socket, int input);

}  // namespace motley::engine
