#include "engine/sequences/request_counts.h"

namespace motley::engine {
namespace {

constexpr Duration between_overflow_reports = std::chrono::minutes(1);

}  // namespace

RequestCounts::RequestCounts(Residency* residency, std::size_t ranks) : residency_(residency) {
  stats_.ranks.resize(ranks);
}

void RequestCounts::count_begun(const Job& job) {
  Stats& stats = of(job.request);
  stats.queue_time.observe(job.begun - job.accepted);
  const auto prompt = static_cast<std::uint64_t>(job.prompt_tokens());
  stats.begun_tokens += prompt;
  count_traffic(job, [&](AdapterTraffic& traffic) { traffic.prompt_tokens += prompt; });
}

void RequestCounts::count_prefix(const Job& job, std::size_t tokens,
                                 const SequencePages::Adopted& found) {
  Stats& stats = of(job.request);
  stats.prefix_lookup_tokens += tokens;
  stats.prefix_hit_tokens += static_cast<std::uint64_t>(found.tokens);
  stats.prefix_state_missed_tokens += static_cast<std::uint64_t>(found.matched - found.tokens);
}

void RequestCounts::count_token(const Job& job, const Sequence& sequence, TimePoint now) {
  const bool first = job.completion_tokens == 0;
  const bool follows = sequence.generated > 0;
  const auto count = [&](auto& counts) {
    ++counts.generated_tokens;
    if (first) counts.time_to_first_token.observe(now - job.accepted);
    if (follows) counts.time_per_token.observe(now - sequence.last_token);
  };
  count(of(job.request));
  count_traffic(job, count);
}

void RequestCounts::count_choice(const Job& job, FinishReason reason) {
  const auto count = [reason](auto& counts) {
    switch (reason) {
      case FinishReason::stop:
        ++counts.finished_stop;
        break;
      case FinishReason::length:
        ++counts.finished_length;
        break;
      case FinishReason::cancelled:
      case FinishReason::aborted:
        ++counts.finished_cancelled;
        break;
    }
  };
  count(of(job.request));
  count_traffic(job, count);
}

void RequestCounts::count_finished(const Job& job, TimePoint now) {
  Stats& stats = of(job.request);
  stats.request_time.observe(now - job.accepted);
  stats.prompt_lengths.observe(static_cast<double>(job.prompt_tokens()));
  stats.answer_lengths.observe(static_cast<double>(job.completion_tokens));
  if (job.started) stats.running_time.observe(now - job.begun);
  note_adapters(job);
  if (job.completion_tokens == 0) return;
  stats.prefill_time.observe(job.first_token - job.begun);
  stats.decode_time.observe(job.last_token - job.first_token);
}

void RequestCounts::count_failed(const Job& job) {
  ++of(job.request).failed;
  count_traffic(job, [](AdapterTraffic& traffic) { ++traffic.failed; });
  note_adapters(job);
}

bool RequestCounts::count_overflow(const Job& job, TimePoint now) {
  bool report = false;
  const auto count = [&](std::uint64_t& failures, std::optional<TimePoint>& reported) {
    ++failures;
    if (reported && now - *reported < between_overflow_reports) return;
    reported = now;
    report = true;
  };
  std::uint64_t uncounted = 0;
  const bool internal = job.request.internal;
  if (job.adapters.entries().empty())
    count(internal ? uncounted : stats_.non_finite_logits, overflow_reported_);
  for (AdapterEntry* const entry : job.adapters.entries()) {
    count(internal ? uncounted : entry->non_finite_logits, entry->non_finite_reported);
    residency_->note(*entry);
  }
  return report;
}

}  // namespace motley::engine
