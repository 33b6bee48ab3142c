#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/system/clock.h"
#include "engine/residency/adapter_store.h"

namespace motley::engine {

// Adapters whose files could not be read as they were when they were loaded. For a while they are
// not read again for each request, unless their files have changed. Thread-safe.
class FailedReads {
 public:
  static constexpr Duration pause = std::chrono::seconds(1);

  // The clock must outlive this; null: the steady clock.
  explicit FailedReads(const Clock* clock);

  // The files in an adapter's folder; none if the folder does not exist.
  struct Files {
    // Names, inodes, sizes and times, which differ if files are replaced.
    std::string identity;
    std::uint64_t bytes = 0;
  };
  static Files files_of(const std::filesystem::path& folder);

  // Why that content could not be read recently, if the files have not changed.
  std::optional<Error> find(const AdapterStore::Job& job, const Files& files) const;
  // Lack of memory is not recorded.
  void note(const AdapterStore::Job& job, const Files& files, const Error& error);

 private:
  struct Failure {
    lora::ContentVersion version;
    std::string files;  // their identity
    Error error;
    TimePoint when;
  };

  const Clock* clock_;
  mutable std::mutex lock_;
  std::map<std::string, Failure, std::less<>> failures_;  // by name
};

}  // namespace motley::engine
