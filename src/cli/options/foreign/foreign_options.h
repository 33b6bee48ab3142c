#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// Options of other servers, as data (foreign_table.cc). docs/guide/coming-from-vllm.md shows the
// table; a test compares them.
namespace motley::cli {

enum class ForeignUse : std::uint8_t {
  mapped,   // onto an option of ours
  ignored,  // has no effect here, and answers are the same
  refused   // can't be done, or would change answers
};

// How many words follow an option.
enum class ForeignArity : std::uint8_t {
  none,      // a switch; "true" or "false" may follow, and --no-NAME is "false"
  one,       //
  optional,  // one, unless another option follows
  several    // all words up to the next option
};

// What becomes of one value, where that differs from the option's rule. Of a switch, the values are
// "true" and "false".
struct ForeignValue {
  std::string_view value;  // model_itself: the command's MODEL, however it is written
  ForeignUse use;
  std::string_view here;  // as in ForeignOption; of a mapped one: our option and its value
};

inline constexpr std::string_view model_itself = "MODEL";
// Its items are adapters, which --adapter is read with.
inline constexpr std::string_view lora_modules_option = "--lora-modules";

struct ForeignOption {
  std::string_view name;             // "--tensor-parallel-size"
  std::string_view short_name = {};  // "-tp"
  ForeignArity arity = ForeignArity::one;
  ForeignUse use = ForeignUse::ignored;
  // Mapped: our option, or model_itself. Ignored: why, a sentence. Refused: why, a sentence
  // without its subject, which is the option.
  std::string_view here = {};
  std::string_view fix = {};  // of what is refused
  std::span<const ForeignValue> values = {};
};

std::span<const ForeignOption> foreign_options();

// A word of the command line that is an option of another server.
struct ForeignName {
  const ForeignOption* option = nullptr;
  bool negated = false;  // --no-NAME
  bool dotted = false;   // --NAME.KEY, which sets a part of a JSON value, and takes one
};

// Finds a normalised name: "--max-num-seqs", "-tp", "--no-enable-lora", "-cc.mode".
std::optional<ForeignName> find_foreign(std::string_view name);

// A foreign option as it was given, and what it means.
struct GivenForeign {
  ForeignName name;
  std::string written;  // with which it was named
  std::vector<std::string> values = {};
  std::string where = {};  // for errors
};

struct ForeignMeaning {
  ForeignUse use = ForeignUse::ignored;
  std::string_view reason = {};          // of what is ignored
  std::string_view option = {};          // ours, of what is mapped; empty: not given
  std::vector<std::string> values = {};  // of that option; none: it is a switch
};

// `model`: the command's MODEL. What is refused is an error.
Result<ForeignMeaning> meaning_of(const GivenForeign& given, std::string_view model);

// What an option of another server is here, as advice for commands that do not take it: "vLLM's
// --enforce-eager is --no-graphs here". Empty for other words.
std::string foreign_option_advice(std::string_view option);

}  // namespace motley::cli
