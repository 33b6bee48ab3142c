#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/requests/adapter_spec.h"
#include "engine/residency/adapter_names.h"
#include "engine/residency/adapter_store.h"

namespace motley::engine {

// Called once, with the result of a load or of an unload.
using LoadAnswer = std::function<void(Result<void>)>;
// Always answers: if memory is too short for the error, with out_of_memory.
void answer_with(const LoadAnswer& answer, const Error& error);

// Loads under way: the store's jobs in progress, and what has been read and is held until it is
// settled whether it enters.
class LoadJobs {
 public:
  struct Job {
    AdapterStore::Task task = AdapterStore::Task::read;
    AdapterSpec spec;
    bool replace = false;
    bool hold = false;
    LoadAnswer answer;
    bool is_new = false;  // its name was not taken when it began
  };
  // What has been read, with all that it takes to enter: memory that runs out later does not keep
  // it from that.
  struct Read {
    AdapterSpec spec;
    AdapterStore::Done done;
    std::string version_name;
    std::vector<std::string_view> modules;
    AdapterNames::Map::node_type entry;  // for a name that is not there when it enters
    bool is_new = false;                 // its name was not taken when its job began
  };
  explicit LoadJobs(AdapterStore* store) : store_(store) {}

  // Returns the job's id. If memory runs out, nothing has begun.
  Result<std::uint64_t> start(const Job& job, lora::ContentVersion version = {});
  // A job that the store has done.
  Job take(std::uint64_t id);
  // Answers all jobs; their results are taken nonetheless.
  void answer_all(const Error& error);
  std::size_t size() const { return jobs_.size(); }
  bool contains(std::uint64_t id) const { return jobs_.contains(id); }

  void hold(Read read);
  // Nothing if there is none of this name.
  std::optional<Read> take_held(std::string_view name);
  void drop_held(std::string_view name) { take_held(name); }
  void drop_held();
  // Pages of pinned adapters that are held.
  std::uint64_t held_pinned_pages() const;

  // Whether content for this name is being read or held.
  bool reads(std::string_view name) const;
  // How many names that were not taken are being read or held.
  std::size_t new_names() const { return new_names_; }

 private:
  AdapterStore* store_;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, Job> jobs_;
  std::set<std::string, std::less<>> being_read_;
  std::map<std::string, Read, std::less<>> held_;
  std::size_t new_names_ = 0;
};

}  // namespace motley::engine
