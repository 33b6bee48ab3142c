#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lora/pages/pool.h"
#include "runner/runner.h"
#include "runner/score_input.h"

namespace motley::runner {

// The model's scores of a line: entry i of token_logprobs is the log-probability of token i given
// those before it (the first has none); row i of the tops is the distribution after token i.
struct ScoreResult {
  std::vector<float> token_logprobs;  // [tokens]; the first is unused
  std::vector<std::int32_t> top_ids;  // [tokens, top]
  std::vector<float> top_logprobs;    // [tokens, top]
};

struct ScoreOptions {
  int top = 5;
  std::function<void(std::uint64_t tokens_done)> progress = {};
};

// Scores all lines as one mixed batch: steps take tokens of as many lines as fit. mixes[i] belongs
// to lines[i]. If the runner does not support a mix, the error names the line, before any work.
Result<std::vector<ScoreResult>> score(Runner& runner, std::span<const ScoreLine> lines,
                                       std::span<const lora::Mix> mixes,
                                       const ScoreOptions& options);

// The output line of a result.
std::string score_output(const ScoreLine& line, const ScoreResult& result, int top);

// Over all lines with a reference: mean of half the squared difference, mean and largest
// difference, by the line's adapters ("base", a name, or "a + b"). Empty if no line has a
// reference.
std::string compare_with_references(std::span<const ScoreLine> lines,
                                    std::span<const ScoreResult> results);

}  // namespace motley::runner
