#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/system/clock.h"
#include "engine/requests/adapter_spec.h"
#include "engine/stats/stats.h"
#include "lora/files/adapter.h"
#include "lora/pages/pool.h"
#include "lora/site_set.h"

namespace motley::engine {

// Loads adapters from disk to where steps read them. Jobs run on other threads and report later; no
// call here waits for I/O.
class AdapterStore {
 public:
  enum class Task : std::uint8_t {
    read,   // check the folder, measure it, and keep it if there is space
    place,  // bring it to where steps read it
  };
  struct Job {
    std::uint64_t id = 0;
    Task task = Task::read;
    AdapterSpec spec;
    // For place: the version that was read; different content on disk is an error.
    lora::ContentVersion version = {};
    // For read: what the name has now serves on until the new content enters, so it is not placed.
    bool keeps_old = false;
  };
  struct Done {
    std::uint64_t id = 0;
    std::optional<Error> error = {};
    // Result of read:
    lora::ContentVersion version = {};
    std::uint64_t pages = 0;
    int rank = 0;                // the largest
    std::string exclusive = {};  // why it cannot be mixed or scaled
    lora::SiteSet sites = {};    // that it changes
    // Result of place:
    lora::Handle handle = {};
    Duration took = {};  // without the time that it waited for a thread
  };
  // Where an adapter's bytes are.
  struct Memory {
    bool device = false;  // that steps read
    bool host = false;    // before a GPU's
  };
  struct Usage {
    std::uint64_t pages = 0;
    std::uint64_t free_pages = 0;
    std::uint64_t pinned_pages = 0;
    std::uint64_t replaced_pages = 0;  // of these, of content that was replaced
    std::uint64_t page_bytes = 0;
    std::uint64_t evictions = 0;
    // Of all ranks: pinned so far, as the source of devices' pages.
    std::uint64_t host_bytes = 0;
    std::uint64_t host_limit_bytes = 0;  // at most
  };

  virtual ~AdapterStore() = default;

  // Called on any thread when a job is done. Set before the first job, and reset before its
  // captures are destroyed.
  virtual void set_wake(std::function<void()> wake) = 0;

  // Jobs of one name run in the order in which they began; others may run concurrently.
  virtual void begin(Job job) = 0;
  // Results of reads are returned in the order in which the reads began, so that outcomes do not
  // depend on timing; results of placements are returned as soon as they are done.
  virtual std::optional<Done> take_done() = 0;

  // Pins the adapter if it is where steps read it.
  virtual lora::Handle acquire(const std::string& name, lora::ContentVersion version) = 0;
  virtual Usage usage() const = 0;
  // Thread-safe.
  virtual Memory memory_of(const std::string& /*name*/, lora::ContentVersion /*version*/) const {
    return {};
  }
  // Pages of each rank that computes the model with others; none of one alone.
  virtual std::size_t ranks() const { return 0; }
  virtual RankStats pages_of(std::size_t /*rank*/) const { return {}; }
};

}  // namespace motley::engine
