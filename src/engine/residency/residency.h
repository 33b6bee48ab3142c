#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/function_ref.h"
#include "base/result.h"
#include "engine/requests/request.h"
#include "engine/residency/adapter_changes.h"
#include "engine/residency/adapter_entry.h"
#include "engine/residency/adapter_names.h"
#include "engine/residency/adapter_room.h"
#include "engine/residency/adapter_store.h"
#include "engine/residency/claim.h"
#include "engine/residency/load_jobs.h"
#include "engine/residency/traffic_counters.h"
#include "engine/stats/stats.h"
#include "lora/site_set.h"

namespace motley::engine {

// Of a load that expects another version than the present one; empty: there is no such adapter.
Error version_conflict(std::string_view name, std::string_view present);

// Manages which adapters are resident. Never promises more pages than there are: a claim is granted
// as a whole, and only if all its adapters fit beside those claimed, so that no two requests wait
// for each other. Idle adapters are evicted as needed; if that is not enough, make_room() closes
// some that are in use.
class Residency {
 public:
  struct Limits {
    int rank = 0;           // adapters with a larger one are refused; 0: unlimited
    std::size_t names = 0;  // so many adapters at most; 0: unlimited
    // So many adapters have traffic counters of their own; the others share one.
    std::size_t counted = 256;
  };
  // How loads went.
  struct LoadStats {
    std::uint64_t loads = 0;
    std::uint64_t failures = 0;
    std::uint64_t replacements = 0;
    DurationHistogram time;
  };
  Residency(AdapterStore* store, const Limits& limits)
      : store_(store), limits_(limits), loads_(store), traffic_(limits.counted) {}
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  const AdapterNames& entries() const { return entries_; }
  // Null if no request can name it.
  AdapterEntry* find(std::string_view name) const;

  using Answer = LoadAnswer;
  void load(const AdapterSpec& spec, bool replace, const Answer& answer);
  // The same in two steps: answers when the adapter has been read and checked. No request can name
  // it, or the content that replaces another, until settle() lets it enter; or it is dropped.
  // settle() takes no memory for that. False: no such adapter is held, as loads were given up.
  void hold(const AdapterSpec& spec, bool replace, const Answer& answer);
  bool settle(std::string_view name, bool enters);
  // Answers when no request names it any more.
  void unload(std::string_view name, const Answer& answer);
  // Answers all pending calls with this error.
  void give_up(const Error& error);

  // Takes the store's results, removes unloaded adapters, and retries loads. Returns whether
  // adapters were added or removed, became broken, or are readable again.
  bool collect();

  // Whether content to which running requests switch has become ready since the last call.
  bool take_switches() { return std::exchange(switches_, false); }

  // Nothing if the adapters are closing, or do not fit now beside the pages that are kept.
  std::optional<Claim> claim(std::span<AdapterEntry* const> adapters);
  // Whether these would fit beside pinned adapters alone.
  bool can_fit(std::span<AdapterEntry* const> adapters) const;
  // Closing adapters become ready again, and no pages are kept.
  void stop_making_room();
  // Call before the first of the next two after stop_making_room().
  void rank_in_use();
  // AdapterRoom::price; nothing if closing adapters is not enough.
  std::optional<std::int64_t> price_of_room(std::span<AdapterEntry* const> adapters) const;
  // Closes others so that these will fit, and keeps the pages that become free for them.
  void make_room(std::span<AdapterEntry* const> adapters);
  bool making_room() const { return room_.making_room(); }

  // The sites that any adapter ever loaded changes.
  const lora::SiteSet& sites() const { return sites_; }
  const LoadStats& load_stats() const { return load_stats_; }
  AdapterStore::Usage usage() const { return store_->usage(); }
  const AdapterStore& store() const { return *store_; }
  // Jobs of the store in progress.
  std::size_t jobs() const { return loads_.size(); }
  // Call after a change of an entry that others see.
  void note(AdapterEntry& entry);
  // Call for each request: from the first one until it is unloaded the adapter is counted by
  // itself, unless the limit of such adapters is reached.
  void count_apart(AdapterEntry& entry) { traffic_.count_apart(entry); }
  // Where its requests are counted. Does not allocate.
  AdapterTraffic& traffic_of(const AdapterEntry& entry) { return traffic_.of(entry); }
  const AdapterTraffic& other_traffic() const { return traffic_.others(); }
  // Counts of sequences by adapter begin again at 0; then count() adds one to running or waiting.
  void clear_counts();
  void count(AdapterEntry& entry, std::int64_t AdapterEntry::* sequences);
  // Calls see(name, entry) for each adapter that has changed since forget_changes(); null: it is
  // gone.
  void each_change(FunctionRef<void(const std::string&, const AdapterEntry*)> see) const {
    changes_.each(entries_, see);
  }
  void forget_changes() { changes_.forget(); }
  Result<void> check() const;

 private:
  friend class Claim;

  Result<void> try_load(const LoadJobs::Job& job);
  Result<void> try_unload(std::string_view name, const Answer& answer);
  // Whether there may be one more name.
  Result<void> may_add(const std::string& where) const;
  // Whether the name has the version that the load expects.
  Result<void> may_replace(const AdapterSpec& spec) const;
  // Places its bytes, or sets the error for its claims.
  void place(AdapterEntry& entry);
  // Whether an adapter that was read is accepted: its rank, and its pages beside pinned adapters.
  Result<void> may_enter(const AdapterSpec& spec, const AdapterStore::Done& done) const;
  // Takes the result of a read: lets the adapter enter, or holds it.
  Result<void> take_read(const LoadJobs::Job& job, AdapterStore::Done& done);
  // Does not allocate, but to place its bytes.
  void enter(LoadJobs::Read read);
  // Requests that waited for new content get the old content, if it is there.
  void return_to_old_content(std::string_view name);
  // These return whether it became broken, or is readable again.
  bool take_placed(const std::string& name, AdapterStore::Done done);
  bool take_ready(AdapterEntry& entry, AdapterStore::Done& done);
  bool take_failed(AdapterEntry& entry, const Error& why);
  // The error for requests that wait for it; logged once.
  static Error failure_of(AdapterEntry& entry, const Error& why);
  void drop_claim(AdapterEntry& entry);
  void try_again(AdapterEntry& entry);
  // Removes unloaded adapters that no request names any more; whether there were any.
  bool sweep();
  void see_room();
  // Before and after a change of an entry's pages, or of whether it is pinned.
  void leave_pinned(const AdapterEntry& entry);
  void join_pinned(const AdapterEntry& entry);
  std::uint64_t pages_to_bring(std::span<AdapterEntry* const> adapters) const;
  std::string_view wrong_with(const AdapterEntry& entry) const;

  AdapterStore* store_;
  Limits limits_;
  AdapterNames entries_;
  AdapterChanges changes_;
  EntryList<&AdapterEntry::busy> busy_;
  EntryList<&AdapterEntry::counted> counted_;
  std::uint64_t pinned_pages_ = 0;  // of pinned adapters, without those that are held
  LoadJobs loads_;
  std::map<std::string, Answer, std::less<>> unloading_;
  std::uint64_t last_load_ = 0;
  bool switches_ = false;  // take_switches()
  AdapterRoom<AdapterEntry*> room_;
  lora::SiteSet sites_;
  LoadStats load_stats_;
  TrafficCounters traffic_;
};

}  // namespace motley::engine
