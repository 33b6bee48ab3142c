#include "engine/sequences/sequence_states.h"

#include <utility>

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

std::int64_t SequenceStates::rows_wanted(const RunningSequence& running) const {
  const std::int64_t split = next_split(running);
  return split > 0 ? split - running.computed : running.remaining();
}

std::int64_t SequenceStates::next_split(const RunningSequence& running) const {
  if (!running.slot || !rules_.splits_prompts || running.sequence.job->scoring()) return 0;
  // Pages that a request finds and cannot use for want of a state are worth a step if they are
  // many.
  constexpr std::int64_t worth = 16;
  const std::int64_t page = pages_->page_tokens();
  const std::int64_t last =
      running.sequence.job->request.reused_up_to(running.sequence.length(), page);
  const bool lost_much = running.matched - running.saved >= worth * page;
  for (const std::int64_t split : {lost_much ? running.matched : 0, last})
    if (split > running.computed) return split;
  return 0;
}

void SequenceStates::settle(RunningSequence& running, const runner::Chunk& chunk,
                            bool ends_at_split) {
  if (!running.slot) return;
  const std::int64_t page = pages_->page_tokens();
  running.anchor = (chunk.length + chunk.state.certain) / page * page;
  const bool due = rules_.interval > 0 && running.anchor - running.saved >= rules_.interval;
  if (ends_at_split || due) save(running);
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
