#include "engine/sequences/sequence_states.h"

#include <algorithm>
#include <utility>

#include "kernels/recurrence.h"

namespace motley::engine {

SequenceStates::SequenceStates(Executor* executor, KvPages* pages, const Rules& rules)
    : executor_(executor),
      pages_(pages),
      rules_(rules),
      slot_count_(executor->limits().state_slots),
      copies_to_host_(executor->limits().host_snapshots > 0),
      slots_(slot_count_) {}

std::uint64_t SequenceStates::restore(const SequencePages::Adopted& adopted, StateSlot& slot) {
  if (adopted.snapshot != SnapshotPlaces::none) {
    note(executor_->restore_state(adopted.snapshot, slot.number()));
    return 0;
  }
  const std::uint64_t copy = begun_ + 1;
  pages_->begin_load(adopted.host_snapshot, copy);
  slot.begin_copy(copy);
  begun_ = copy;
  note(executor_->load_state(adopted.host_snapshot, slot.number()));
  return copy;
}

StateSlot SequenceStates::copy_of(const StateSlot& slot) {
  if (!slot) return {};
  StateSlot copy(slots_);
  note(executor_->copy_state(slot.number(), copy.number()));
  return copy;
}

void SequenceStates::save(RunningSequence& running) {
  if (!running.slot || running.anchor == 0 || running.loading > 0) return;
  running.saved = running.anchor;
  if (const auto place = running.pages.add_snapshot(running.anchor))
    note(executor_->save_state(running.slot.number(), *place));
}

// A state that is saved shortly before the prompt's end costs no step: the rows after it stay
// uncertain.
std::int64_t SequenceStates::rows_wanted(const RunningSequence& running) const {
  const std::int64_t save = next_save(running);
  const std::int64_t most = save + pages_->page_tokens() - 1 + kernels::max_uncertain_rows;
  const bool is_last = save == last_save(running);
  if (save == 0 || (is_last && running.sequence.length() <= most)) return running.remaining();
  return save - running.computed;
}

std::int64_t SequenceStates::last_save(const RunningSequence& running) const {
  return running.sequence.job->request.reused_up_to(running.sequence.length(),
                                                    pages_->page_tokens());
}

std::int64_t SequenceStates::next_save(const RunningSequence& running) const {
  if (!running.slot || !rules_.saves_prompts || running.sequence.job->scoring()) return 0;
  // Pages that a request finds and cannot use for want of a state are worth a step if they are
  // many.
  constexpr std::int64_t worth = 16;
  const bool lost_much = running.matched - running.saved >= worth * pages_->page_tokens();
  for (const std::int64_t save : {lost_much ? running.matched : 0, last_save(running)})
    if (save > running.computed) return save;
  return 0;
}

std::optional<std::int64_t> SequenceStates::rows_to_save(const RunningSequence& running,
                                                         std::int64_t rows) const {
  const std::int64_t save = next_save(running);
  if (save == 0 || running.computed + rows < save) return std::nullopt;
  return std::min(rows, save + pages_->page_tokens() - 1 - running.computed);
}

void SequenceStates::settle(RunningSequence& running, const runner::Chunk& chunk, bool saves) {
  if (!running.slot) return;
  const std::int64_t page = pages_->page_tokens();
  running.anchor = (chunk.length + chunk.state.certain) / page * page;
  const bool due = rules_.interval > 0 && running.anchor - running.saved >= rules_.interval;
  if (saves || due) save(running);
}

Result<void> SequenceStates::follow(Running running) {
  if (!copies_to_host_) return {};
  if (ended_ < begun_) {
    MOTLEY_TRY(ended_, executor_->state_copies_ended());
    pages_->end_copies(ended_);
    slots_.end_copies(ended_);
  }
  for (const auto& each : running) {
    if (each->loading == 0 || each->loading > ended_) continue;
    each->loading = 0;
    // On the device, too: it is likely to be used again.
    save(*each);
  }
  while (const auto offload = pages_->begin_offload(begun_ + 1)) {
    ++begun_;
    MOTLEY_TRY_VOID(executor_->offload_state(offload->place, offload->host_place));
  }
  return {};
}

Result<void> SequenceStates::finish(Running running) {
  MOTLEY_TRY_VOID(executor_->finish_state_copies());
  return follow(running);
}

void SequenceStates::note(Result<void> copied) {
  if (copied_.ok()) copied_ = std::move(copied);
}

}  // namespace motley::engine
