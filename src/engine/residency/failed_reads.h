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
// not read again for every request that names them, unless their files are others by then. Safe to
// call from any thread.
class FailedReads {
 public:
  static constexpr Duration pause = std::chrono::seconds(1);

  // The clock must outlive this; null: the steady one.
  explicit FailedReads(const Clock* clock);

  // An adapter's files in its folder; none where there is no such folder.
  struct Files {
    // Names, places, sizes and times: what tells them from files that are there later.
    std::string identity;
    std::uint64_t bytes = 0;
  };
  static Files files_of(const std::filesystem::path& folder);

  // Why that content could not be read a moment ago, if the files are still these.
  std::optional<Error> find(const AdapterStore::Job& job, const Files& files) const;
  // Memory that is missing is no fault of the files.
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
