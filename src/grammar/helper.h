#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "grammar/grammar.h"

// Grammars are compiled and followed in separate processes: if a client's grammar crashes, stalls
// or bloats its process, only helpers of this grammar are affected. The first helper holds the
// model's vocabulary and forks one helper for each grammar, so that the vocabulary is in memory
// once.
namespace motley::grammar {

// How many times as long as in a program that ships the same work may take in this build.
#ifdef MOTLEY_DEBUG
inline constexpr int build_slowness = 20;
#else
inline constexpr int build_slowness = 1;
#endif

// Limits of one grammar.
struct Limits {
  std::chrono::milliseconds compile_time{10'000 * build_slowness};  // of processor time
  std::chrono::milliseconds mask_time{250 * build_slowness};  // of processor time, for one mask
  // Processor time of its masks in all, beyond an allowance for each token.
  std::chrono::milliseconds excess_time{2'000 * build_slowness};
  std::chrono::milliseconds token_time{2 * build_slowness};
  std::uint64_t memory = std::uint64_t{1} << 30;  // in addition to the vocabulary
};

// The input of the first helper.
struct HelperInput {
  Tokens tokens;
  Limits limits;

  std::string write() const;
  static HelperInput read(std::string_view text);
};

// The argument that makes the program a helper, and its descriptors then.
inline constexpr std::string_view helper_argument = "--grammar-helper";
inline constexpr int helper_socket = 3;
inline constexpr int helper_input = 4;

// The processor time of the calling process in nanoseconds. Called in signal handlers, too.
using ProcessorClock = std::int64_t (*)();
std::int64_t processor_time_ns();

// Runs the first helper: forks a helper for each socket that arrives over `socket`, and ends when
// the server does. `input`: a file with a HelperInput. Returns the exit status.
int run_helper(int socket, int input, ProcessorClock clock = processor_time_ns);

}  // namespace motley::grammar
