#include "engine/residency/load_jobs.h"

#include <utility>

#include "base/check.h"
#include "base/system/out_of_memory.h"

namespace motley::engine {

void answer_with(const LoadAnswer& answer, const Error& error) {
  std::optional<Result<void>> reply;
  if (!within_memory([&] { reply = error; }).ok()) reply = out_of_memory_error();
  answer(*std::move(reply));
}

Result<std::uint64_t> LoadJobs::start(const Job& job, lora::ContentVersion version) {
  const std::uint64_t id = next_id_++;
  const bool is_read = job.task == AdapterStore::Task::read;
  const Result<void> begun = within_memory([&] {
    AdapterStore::Job stored{.id = id,
                             .task = job.task,
                             .spec = job.spec,
                             .version = version,
                             .keeps_old = job.hold && !job.is_new};
    jobs_.emplace(id, job);
    if (is_read) being_read_.insert(job.spec.name);
    store_->begin(std::move(stored));
  });
  if (!begun.ok()) {
    jobs_.erase(id);
    if (is_read) being_read_.erase(job.spec.name);
    return begun.error();
  }
  if (job.is_new) ++new_names_;
  return id;
}

LoadJobs::Job LoadJobs::take(std::uint64_t id) {
  const auto found = jobs_.find(id);
  MOTLEY_CHECK(found != jobs_.end(), "the store does each job once");
  Job job = std::move(found->second);
  jobs_.erase(found);
  if (job.task == AdapterStore::Task::read) being_read_.erase(job.spec.name);
  if (job.is_new) --new_names_;
  return job;
}

void LoadJobs::answer_all(const Error& error) {
  for (auto& [id, job] : jobs_) {
    if (job.answer) answer_with(std::exchange(job.answer, nullptr), error);
  }
}

void LoadJobs::hold(Read read) {
  const bool is_new = read.is_new;
  std::string name = read.spec.name;
  held_.emplace(std::move(name), std::move(read));
  if (is_new) ++new_names_;
}

std::optional<LoadJobs::Read> LoadJobs::take_held(std::string_view name) {
  const auto found = held_.find(name);
  if (found == held_.end()) return std::nullopt;
  std::optional<Read> held = std::move(found->second);
  held_.erase(found);
  if (held->is_new) --new_names_;
  return held;
}

void LoadJobs::drop_held() {
  while (!held_.empty()) drop_held(std::string_view(held_.begin()->first));
}

std::uint64_t LoadJobs::held_pinned_pages() const {
  std::uint64_t pages = 0;
  for (const auto& [name, held] : held_) {
    if (held.spec.pinned) pages += held.done.pages;
  }
  return pages;
}

bool LoadJobs::reads(std::string_view name) const {
  return held_.contains(name) || being_read_.contains(name);
}

}  // namespace motley::engine
