#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/system/clock.h"
#include "cli/bench/load/plan.h"
#include "engine/engine.h"

namespace motley::cli {

// Conversations, one after the other and one turn at a time. A turn's prompt is that of the turn
// before, its answer, and new tokens.
struct TurnsShape {
  std::int64_t turns = 2;
  LoadShape first = {};          // of first prompts, and of all answers
  std::int64_t new_tokens = 64;  // of each later turn
  std::int64_t conversations = 5;
};

// What all conversations have in one turn, an entry for each.
struct Turn {
  std::vector<double> prompt_tokens;
  std::vector<double> cached_tokens;
  std::vector<double> first_token;  // seconds
};

// Requests name the base. Fails with the first request that fails.
Result<std::vector<Turn>> run_turns(engine::Engine& engine, std::int64_t vocabulary,
                                    const TurnsShape& shape, const Clock& clock);

std::string turns_table(const std::vector<Turn>& turns);
// A line for each turn.
std::string turns_json(const std::vector<Turn>& turns);

}  // namespace motley::cli
