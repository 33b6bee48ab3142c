#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/result.h"
#include "engine/execution/executor.h"
#include "engine/memory/kv_pages.h"
#include "engine/memory/state_slots.h"
#include "engine/sequences/sequence.h"

namespace motley::engine {

// The states that a model with recurrent layers keeps for sequences: slots, the copies between them
// and snapshots, and where states of prompts are saved. Copies are made between
// steps; the first error is what outcome() returns next. Of other models there are no states, and
// nothing here does anything.
class SequenceStates {
 public:
  struct Rules {
    bool saves_prompts = false;  // their states, close to their ends
    // Positions of a sequence after which its state is saved anyway; 0: never.
    std::int64_t interval = 0;
  };
  SequenceStates(Executor* executor, KvPages* pages, const Rules& rules);
  SequenceStates(const SequenceStates&) = delete;
  SequenceStates& operator=(const SequenceStates&) = delete;

  bool kept() const { return slot_count_ > 0; }
  const StateSlots& slots() const { return slots_; }
  std::uint64_t copies_begun() const { return begun_; }

  // For a sequence that begins; there must be a free one, if states are kept.
  StateSlot take_slot() { return kept() ? StateSlot(slots_) : StateSlot(); }
  // Gives the slot the state that adopted pages end with. The number of the copy if it comes from
  // the host, else 0.
  std::uint64_t restore(const SequencePages::Adopted& adopted, StateSlot& slot);
  // Another slot with the same state.
  StateSlot copy_of(const StateSlot& slot);
  // Saves the state of a sequence where it stands.
  void save(RunningSequence& running);

  // Of a prompt: the tokens to compute up to where its state is saved next, or to its end.
  std::int64_t rows_wanted(const RunningSequence& running) const;
  // Where the state of the sequence's prompt is saved: the next position after what is computed; 0:
  // nowhere.
  std::int64_t next_save(const RunningSequence& running) const;
  // Of so many next rows, those that the state may take in so that it stands where it is saved;
  // nothing: the rows do not reach that position.
  std::optional<std::int64_t> rows_to_save(const RunningSequence& running, std::int64_t rows) const;
  // After a step with this chunk. `saves`: its state stands where it is saved.
  void settle(RunningSequence& running, const runner::Chunk& chunk, bool saves);

  using Running = std::span<const std::unique_ptr<RunningSequence>>;
  // Takes note of copies from and to the host that have ended, and begins others.
  Result<void> follow(Running running);
  // Waits until all have ended.
  Result<void> finish(Running running);
  void note(Result<void> copied);
  // Of the copies since the last call.
  Result<void> outcome() { return std::exchange(copied_, {}); }

 private:
  // The last position at which the state of a prompt is saved.
  std::int64_t last_save(const RunningSequence& running) const;

  Executor* executor_;
  KvPages* pages_;
  Rules rules_;
  std::int64_t slot_count_;
  bool copies_to_host_;
  StateSlots slots_;
  Result<void> copied_;
  // Copies of states from and to the host, numbered from 1.
  std::uint64_t begun_ = 0;
  std::uint64_t ended_ = 0;
};

}  // namespace motley::engine
