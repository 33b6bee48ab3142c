#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/sequences/jobs.h"
#include "engine/sequences/sequence.h"
#include "engine/sequences/sequence_states.h"
#include "engine/test_world.h"

namespace motley::engine::test {

// Sequences outside of a scheduler, for tests of its parts. Request n has the id n.
struct Sequences {
  explicit Sequences(const Executor::Limits& limits = WorldOptions{}.limits,
                     const SequenceStates::Rules& rules = {})
      : executor(limits),
        pages(limits.pages, limits.page_tokens, true,
              limits.state_slots > 0
                  ? std::optional(KvPages::Snapshots{.places = limits.snapshots,
                                                     .host_places = limits.host_snapshots,
                                                     .copies = 4})
                  : std::nullopt),
        states(&executor, &pages, rules) {}

  std::shared_ptr<Job> job(Request request) {
    std::vector<AdapterEntry*> adapters;
    for (const lora::ScaledAdapter& each : request.adapters)
      adapters.push_back(residency.find(each.name));
    auto job = std::make_shared<Job>();
    job->id = ++last_id;
    job->adapters = NamedAdapters(std::move(adapters));
    job->open = request.choices;
    job->closed.assign(static_cast<std::size_t>(request.choices), false);
    jobs.charge(*job, request);
    job->request = std::move(request);
    job->scored = job->request.prompt_first;
    jobs.add(job);
    return job;
  }
  Sequence sequence(Request request) {
    const std::shared_ptr<Job> made = job(std::move(request));
    return {.job = made,
            .choices = made->request.choices,
            .forked = made->request.choices == 1,
            .tokens = made->request.tokens,
            .sampler = std::make_unique<FakeSampler>(0)};
  }
  WaitingSequence waiting(Request request) { return {.sequence = sequence(std::move(request))}; }
  // Of the base; takes what the cache has.
  std::unique_ptr<RunningSequence> running(Request request) {
    Sequence made = sequence(std::move(request));
    SequencePages own(pages, {});
    const SequencePages::Adopted adopted = own.adopt(made.tokens);
    own.grow(adopted.tokens, made.length());
    Claim claim = *residency.claim({});
    claim.resolve({}).value();
    return std::make_unique<RunningSequence>(RunningSequence{.sequence = std::move(made),
                                                             .claim = std::move(claim),
                                                             .pages = std::move(own),
                                                             .slot = states.take_slot(),
                                                             .place = make_waiting_place(),
                                                             .computed = adopted.tokens,
                                                             .anchor = adopted.tokens,
                                                             .saved = adopted.tokens,
                                                             .matched = adopted.matched});
  }

  FakeExecutor executor;
  FakeStore store{8};
  KvPages pages;
  SequenceStates states;
  Residency residency{&store, {}};
  Jobs jobs;
  RequestId last_id = 0;
};

}  // namespace motley::engine::test
