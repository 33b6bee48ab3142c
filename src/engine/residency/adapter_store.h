#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "lora/files/adapter.h"
#include "lora/pages/pool.h"
#include "lora/site_set.h"

namespace motley::engine {

// Brings adapters from disk to where steps read them. Jobs are done on other threads and reported
// later; no call here waits for bytes.
class AdapterStore {
 public:
  enum class Task : std::uint8_t {
    read,   // check the folder, measure it, and keep what there is room for
    place,  // bring it to where steps read it
  };
  struct Job {
    std::uint64_t id = 0;
    Task task = Task::read;
    AdapterSpec spec;
    // place: what was read before; other content on disk by now is an error.
    lora::ContentVersion version = {};
  };
  struct Done {
    std::uint64_t id = 0;
    std::optional<Error> error = {};
    // read
    lora::ContentVersion version = {};
    std::uint64_t pages = 0;
    int rank = 0;                // the largest
    std::string exclusive = {};  // why it can't be mixed or scaled
    lora::SiteSet sites = {};    // that it changes
    // place
    lora::Handle handle = {};
  };
  struct Usage {
    std::uint64_t pages = 0;
    std::uint64_t free_pages = 0;
    std::uint64_t pinned_pages = 0;
    std::uint64_t page_bytes = 0;
    std::uint64_t evictions = 0;
    std::uint64_t host_bytes = 0;        // page-locked so far, behind a device's pages
    std::uint64_t host_limit_bytes = 0;  // at most
  };

  virtual ~AdapterStore() = default;

  // Called, on any thread, when a job is done. Set once, before the first job; empty again before
  // what it captures goes.
  virtual void set_wake(std::function<void()> wake) = 0;

  // Jobs of one name are done in the order in which they began, others maybe side by side.
  virtual void begin(Job job) = 0;
  // What came of a read comes in the order in which reads began, so that outcomes do not depend on
  // which file was read first; what came of a place comes as soon as it is done.
  virtual std::optional<Done> take_done() = 0;

  // The adapter, if it is where steps read it.
  virtual lora::Handle acquire(const std::string& name, lora::ContentVersion version) = 0;
  virtual Usage usage() const = 0;
};

}  // namespace motley::engine
