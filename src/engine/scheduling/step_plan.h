#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/execution/executor.h"
#include "engine/sequences/sequence.h"
#include "runner/step_layout.h"

namespace motley::engine {

// The layout of one step and what came of it: which sequences compute how many tokens, what each
// draws, and with which samplers. Reserves its memory once; only forked samplers allocate.
class StepPlan {
 public:
  struct Limits {
    std::int64_t rows = 0;
    std::int64_t sequences = 0;
  };
  explicit StepPlan(const Limits& limits);
  StepPlan(const StepPlan&) = delete;
  StepPlan& operator=(const StepPlan&) = delete;

  void clear();
  // Begins a next step. So many sequences may come to it, by forking.
  void start(std::int64_t free_sequences);
  // Plans the sequence's next `count` tokens and, if nothing of it remains then, its draws. An
  // error is about a fork: the sequence has fewer draws than it should.
  Result<void> add(RunningSequence& running, std::int64_t count);
  // The state of the last one that was added takes in so many of its rows, and is saved.
  void save_state(std::int64_t certain_rows) { planned_.back().saved_rows = certain_rows; }
  // Connects chunks and outputs; nothing is added afterwards.
  void finish();

  bool empty() const { return planned_.empty(); }
  std::size_t size() const { return planned_.size(); }
  std::int64_t rows_left() const { return rows_left_; }
  // What the executor reads and fills.
  std::span<const runner::Chunk> chunks() const { return chunks_; }
  std::span<ChunkOutput> outputs() { return outputs_; }
  // Between steps the chunks pin nothing.
  void unpin();

  // A sequence's part of the step.
  struct Part {
    RunningSequence& running;
    const runner::Chunk& chunk;
    const ChunkOutput& output;
    std::span<std::unique_ptr<Sampler>> forked_samplers;  // one for each draw, if it forks
    bool saves_state = false;
  };
  Part part(std::size_t at);

  // Of the step under way, for a message; reads only what does not change during it.
  std::string describe() const;

 private:
  struct Planned {
    RunningSequence* running = nullptr;
    std::size_t first_draw = 0;
    std::size_t draws = 0;
    std::size_t first_fork = 0;
    std::optional<std::int64_t> saved_rows = {};  // save_state()
  };

  static void add_scores(const Request& request, std::size_t begin, std::size_t rows,
                         ChunkOutput& output);
  Result<void> add_draws(RunningSequence& running);
  void fork_samplers(Sequence& sequence, Planned& planned, Draw draw);

  Limits limits_;
  std::int64_t rows_left_ = 0;
  std::int64_t free_sequences_ = 0;  // for choices that fork
  std::vector<Planned> planned_;
  std::vector<runner::Chunk> chunks_;  // one for each planned
  std::vector<ChunkOutput> outputs_;   // the same
  std::vector<Draw> draws_;
  std::vector<std::unique_ptr<Sampler>> forked_samplers_;  // in order of draws
};

}  // namespace motley::engine
