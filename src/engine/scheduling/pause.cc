// What pauses do to waiting and running sequences.

#include <algorithm>

#include "engine/scheduling/scheduler.h"

namespace motley::engine {

Result<void> Scheduler::pause(const Pause& pause) {
  MOTLEY_TRY_VOID(pauses_.add(pause));
  note_pauses();
  if (pause.mode != PauseMode::abort) return {};
  jobs_.each([this](const std::shared_ptr<Job>& job) {
    if (pauses_.of(job->request) == PauseMode::abort) abort(job->id);
  });
  return {};
}

void Scheduler::resume(std::string_view adapter) {
  pauses_.end(adapter);
  note_pauses();
}

void Scheduler::resume_all() {
  if (pauses_.empty()) return;
  pauses_.end_all();
  note_pauses();
}

void Scheduler::note_pauses() {
  for (const auto& each : running_.all()) each->paused = pauses_.keeps(each->sequence.job->request);
  running_.note_pauses();
  waiting_.note_pauses(
      [this](const WaitingSequence& each) { return pauses_.keeps(each.sequence.job->request); });
}

bool Scheduler::has_requests(std::string_view adapter, RequestId before) const {
  return std::ranges::any_of(jobs_.all(), [&](const auto& each) {
    if (each.first >= before) return false;
    if (adapter.empty()) return true;
    return std::ranges::any_of(each.second->request.adapters,
                               [&](const lora::ScaledAdapter& one) { return one.name == adapter; });
  });
}

void Scheduler::forget_prefixes(std::string_view adapter) {
  const AdapterEntry* const entry = adapter.empty() ? nullptr : residency_.find(adapter);
  if (!adapter.empty() && entry == nullptr) return;
  pages_.forget([&](const MixKey& key) {
    return entry == nullptr || std::ranges::any_of(key.parts, [&](const auto& part) {
             return part.version == entry->version;
           });
  });
}

void Scheduler::reset_prefix_cache(bool preempts) {
  while (preempts && !running_.empty()) preempt_last();
  forget_prefixes({});
}

}  // namespace motley::engine
