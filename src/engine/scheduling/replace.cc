// What a replaced adapter means for requests that have begun, if they switch.

#include <utility>

#include "base/log.h"
#include "base/system/out_of_memory.h"
#include "engine/scheduling/scheduler.h"

namespace motley::engine {

void Scheduler::follow_replacements() {
  if (!residency_.take_switches()) return;
  for (const auto& running : running_.all()) {
    if (follow_replacements(running->sequence, running->claim)) running->pages.stop_publishing();
  }
  // These will compute all their tokens again, with the new content.
  waiting_.each_claim([this](Sequence& sequence, Claim& claim) {
    std::ignore = follow_replacements(sequence, claim);
  });
}

// Content that cannot take the place of the old, in a mix or beside others' ranks, leaves the
// request what it had.
bool Scheduler::follow_replacements(Sequence& sequence, Claim& claim) {
  Job& job = *sequence.job;
  if (!job.started || job.failure || !claim.outdated()) return false;
  Result<void> renewed;
  const Result<void> kept = within_memory([&] {
    renewed = claim.renew([this](const lora::Mix& mix) { return executor_->takes(mix); });
    if (!renewed.ok()) return;
    std::string versions = claim.versions();
    if (versions == job.versions) return;
    job.versions = versions;
    outbox_.add(job.sink, VersionEvent{.adapter_version = std::move(versions)});
  });
  if (!kept.ok()) {
    jobs_.mark(job, kept.error());
    return false;
  }
  if (!renewed.ok())
    log::warning("engine.not_switched",
                 {{"request", job.id}, {"reason", renewed.error().message()}});
  return renewed.ok();
}

}  // namespace motley::engine
