#pragma once

#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "base/result.h"
#include "engine/events.h"
#include "engine/sampling/sampler.h"
#include "lora/apply/batch.h"
#include "lora/site_set.h"
#include "runner/step_layout.h"

namespace motley::engine {

// One token to be drawn from the logits behind a chunk's last token.
struct Draw {
  Sampler* sampler = nullptr;
  // All of the sequence so far, the prompt's first.
  std::span<const std::int32_t> tokens = {};
  std::int64_t prompt_tokens = 0;
  // The executor's answer; the span is good until the next step's answers come.
  std::int32_t token = 0;  // or kernels::no_token_left, kernels::logits_not_finite
  float logprob = 0;
  std::span<const TopLogprob> top = {};
  bool ends = false;   // its grammar ends with this token
  bool waits = false;  // nothing was drawn, because its sampler is not ready
};

// What a step gives for one of its chunks, beside keys and values.
struct ChunkOutput {
  std::span<Draw> draws = {};  // none: the prompt goes on behind the chunk
  // The tokens whose log-probabilities are asked for, as those that follow the chunk's first,
  // second ... token; at most as many as the chunk has.
  std::span<const std::int32_t> scored = {};
  int top = 0;
  // The executor's answer, one for each of `scored`; good until the next step.
  std::span<const float> logprobs = {};
  std::span<const TopLogprob> logprobs_top = {};  // [scored, top]
  bool scores_finite = true;                      // no logit behind these has overflowed

  // The logits that this takes of the chunk.
  runner::LogitsOf logits() const {
    if (!scored.empty()) return runner::LogitsOf::all;
    return draws.empty() ? runner::LogitsOf::none : runner::LogitsOf::last;
  }
};

// Runs steps. Called from the engine's thread only.
class Executor {
 public:
  struct Limits {
    std::int64_t rows = 0;             // of a step, all chunks together
    std::int64_t sequences = 0;        // of a step; at most as many as rows
    std::int64_t sequence_tokens = 0;  // of the longest sequence
    std::int64_t pages = 0;
    std::int64_t page_tokens = 0;
    std::int64_t vocabulary = 0;
    // Largest rank of one adapter, and of all adapters of a request together; 0: any. What
    // takes() refuses is known by these before the adapters are there.
    int adapter_rank = 0;
    int mix_rank = 0;
  };

  virtual ~Executor() = default;

  virtual Limits limits() const = 0;

  // Whether steps have room for a mix: asked of each before it is in a chunk.
  virtual Result<void> takes(const lora::Mix& mix) const = 0;

  // What a page holds becomes what another holds, before the next step.
  virtual Result<void> copy_page(std::int32_t from, std::int32_t to) = 0;

  // Computes the chunks, whose logits are those that their outputs take, and fills in the answers:
  // an output for each chunk. Calls `meanwhile` once before it waits for them: where a GPU works,
  // once the step has been queued. An error, here as of copy_page, is final: nothing can be
  // computed any more.
  virtual Result<void> step(std::span<const runner::Chunk> chunks, std::span<ChunkOutput> outputs,
                            FunctionRef<void()> meanwhile) = 0;

  // Adapters that change these sites were loaded. What their steps need is made ready by
  // work_ahead(), a piece at a time, when the engine has nothing else to do, and by steps where it
  // takes them no longer.
  virtual void foresee(const lora::SiteSet& /*sites*/) {}
  // Whether there was such a piece. An error is final.
  virtual Result<bool> work_ahead() { return false; }

  // No step follows for now: adapters that the last one used are pinned no more on its account.
  virtual Result<void> let_go() = 0;
};

}  // namespace motley::engine
