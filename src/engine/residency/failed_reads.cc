#include "engine/residency/failed_reads.h"

#include <algorithm>
#include <sys/stat.h>
#include <system_error>
#include <vector>

#include "base/cat.h"

namespace motley::engine {
namespace {

// Only this many files of a folder are examined.
constexpr std::size_t max_files = 256;

}  // namespace

FailedReads::FailedReads(const Clock* clock) : clock_(clock) {
  static const SteadyClock steady;
  if (clock_ == nullptr) clock_ = &steady;
}

FailedReads::Files FailedReads::files_of(const std::filesystem::path& folder) {
  Files all;
  std::vector<std::string> files;
  std::error_code failure;
  for (std::filesystem::directory_iterator at(folder, failure), end; !failure && at != end;
       at.increment(failure)) {
    const std::string name = at->path().filename().string();
    struct stat status{};
    if (!name.starts_with("adapter_") || ::stat(at->path().c_str(), &status) != 0) continue;
    files.push_back(cat(name, " ", status.st_dev, " ", status.st_ino, " ", status.st_size, " ",
                        status.st_mtim.tv_sec, " ", status.st_mtim.tv_nsec, "\n"));
    all.bytes += static_cast<std::uint64_t>(status.st_size);
    if (files.size() == max_files) break;
  }
  std::ranges::sort(files);
  for (const std::string& file : files) all.identity += file;
  return all;
}

std::optional<Error> FailedReads::find(const AdapterStore::Job& job, const Files& files) const {
  const std::lock_guard held(lock_);
  const auto found = failures_.find(job.spec.name);
  if (found == failures_.end()) return std::nullopt;
  const Failure& failure = found->second;
  const bool same = failure.version == job.version && failure.files == files.identity &&
                    clock_->now() - failure.when < pause;
  return same ? std::optional(failure.error) : std::nullopt;
}

void FailedReads::note(const AdapterStore::Job& job, const Files& files, const Error& error) {
  if (error.code() == ErrorCode::out_of_memory || error.code() == ErrorCode::internal) return;
  const std::lock_guard held(lock_);
  const TimePoint now = clock_->now();
  std::erase_if(failures_, [&](const auto& each) { return now - each.second.when >= pause; });
  failures_.insert_or_assign(
      job.spec.name,
      Failure{.version = job.version, .files = files.identity, .error = error, .when = now});
}

}  // namespace motley::engine
