#pragma once

#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "base/result.h"
#include "engine/execution/routed_rows.h"
#include "engine/requests/events.h"
#include "engine/requests/routed_experts.h"
#include "engine/sampling/sampler.h"
#include "lora/apply/batch.h"
#include "lora/site_set.h"
#include "runner/step_layout.h"

namespace motley::engine {

// A token to draw from the logits of a chunk's last token.
struct Draw {
  Sampler* sampler = nullptr;
  // The whole sequence so far, beginning with the prompt.
  std::span<const std::int32_t> tokens = {};
  std::int64_t prompt_tokens = 0;
  // Results; the spans are valid until the next step's results.
  std::int32_t token = 0;  // or kernels::no_token_left, kernels::logits_not_finite
  float logprob = 0;
  std::int32_t rank = 0;
  std::span<const TopLogprob> top = {};
  std::span<const std::int32_t> top_ranks = {};  // of named tokens, if the sampler asks for them
  bool ends = false;                             // the grammar ends with this token
  bool waits = false;  // nothing was drawn, because the sampler is not ready
};

// Inputs and results of a step for one of its chunks, besides keys and values.
struct ChunkOutput {
  std::span<Draw> draws = {};  // empty: the prompt continues after the chunk
  // Tokens whose log-probabilities are requested: those that follow the chunk's token
  // `first_scored`, the next one ... At most as many as the chunk has.
  std::span<const std::int32_t> scored = {};
  std::size_t first_scored = 0;
  int top = 0;
  // Other tokens whose log-probabilities are requested in the same places, [scored, width];
  // negative: none.
  std::span<const std::int32_t> named = {};
  // Results, one for each of `scored`; valid until the next step.
  std::span<const float> logprobs = {};
  std::span<const std::int32_t> ranks = {};
  std::span<const TopLogprob> logprobs_top = {};  // [scored, top]
  std::span<const float> logprobs_named = {};     // as `named`; minus infinity for none
  bool scores_finite = true;                      // false: a logit for these has overflowed
  // Whether the experts of the chunk's tokens are requested. The result is valid until the next
  // step.
  bool asks_routed = false;
  RoutedRows routed = {};

  bool scores(std::size_t token) const {
    return token >= first_scored && token - first_scored < scored.size();
  }
  std::size_t named_width() const { return scored.empty() ? 0 : named.size() / scored.size(); }
  // The logits that this requires of the chunk, and the first row of `all`.
  runner::LogitsOf logits() const {
    if (!scored.empty()) return runner::LogitsOf::all;
    return draws.empty() ? runner::LogitsOf::none : runner::LogitsOf::last;
  }
  std::size_t first_logits() const { return scored.empty() ? 0 : first_scored; }
};

// Runs steps. Called only from the engine's thread.
class Executor {
 public:
  struct Limits {
    std::int64_t rows = 0;  // of a step, all chunks together
    // Of a step; at most as many as rows, and as slots for states.
    std::int64_t sequences = 0;
    std::int64_t sequence_tokens = 0;  // of a sequence
    std::int64_t pages = 0;
    std::int64_t page_tokens = 0;
    std::int64_t vocabulary = 0;
    int prompt_top = max_top_logprobs;  // alternatives to a prompt's token
    // Of models whose layers keep a state for each sequence: sequences that have one, and
    // snapshots. No slots: there are no states.
    std::int64_t state_slots = 0;
    std::int64_t snapshots = 0;
    std::int64_t host_snapshots = 0;  // more of them, in the host's memory
    // The largest rank of one adapter, and of all adapters of a request together; 0: unlimited.
    // They allow refusing what takes() would refuse before adapters are loaded.
    int adapter_rank = 0;
    int mix_rank = 0;
    RoutedExpertsSizes routed_experts = {};
  };

  virtual ~Executor() = default;

  virtual Limits limits() const = 0;

  // Whether steps have memory for a mix; called before it is in a chunk.
  virtual Result<void> takes(const lora::Mix& mix) const = 0;

  // Copies the contents of a page, before the next step.
  virtual Result<void> copy_page(std::int32_t from, std::int32_t to) = 0;

  // Copies of states, before the next step: from slot to slot; a slot's anchor and what stands
  // before it, to a place for snapshots; and back.
  virtual Result<void> copy_state(std::int32_t from, std::int32_t to) = 0;
  virtual Result<void> save_state(std::int32_t slot, std::int32_t place) = 0;
  virtual Result<void> restore_state(std::int32_t place, std::int32_t slot) = 0;

  // Copies next to later steps, where there are snapshots on the host: from a place to one on the
  // host, and from there to a slot. They end in the order of these calls. At most
  // runner::max_state_offloads of the former and one for each slot are under way at once.
  virtual Result<void> offload_state(std::int32_t /*place*/, std::int32_t /*host_place*/) {
    return {};
  }
  virtual Result<void> load_state(std::int32_t /*host_place*/, std::int32_t /*slot*/) { return {}; }
  // How many of all of them have ended; does not wait.
  virtual Result<std::uint64_t> state_copies_ended() { return std::uint64_t{0}; }
  // Waits for all.
  virtual Result<void> finish_state_copies() { return {}; }

  // Computes the chunks and the logits that their outputs require, and fills in the results: one
  // output per chunk. Calls `meanwhile` once before waiting for results: on a GPU after the step
  // has been queued. Errors, here and of copies, are final: nothing can be computed any more.
  virtual Result<void> step(std::span<const runner::Chunk> chunks, std::span<ChunkOutput> outputs,
                            FunctionRef<void()> meanwhile) = 0;

  // Adapters that change these sites were loaded. work_ahead() prepares their steps piece by piece
  // while the engine is idle; steps do so if it does not make them longer.
  virtual void foresee(const lora::SiteSet& /*sites*/) {}
  // Whether there was a piece to prepare. Errors are final.
  virtual Result<bool> work_ahead() { return false; }

  // No step follows for now, so adapters of the last step are no longer pinned for it.
  virtual Result<void> release_adapters() = 0;
};

}  // namespace motley::engine
