#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/request.h"
#include "engine/residency/adapter_entry.h"
#include "engine/residency/adapter_room.h"
#include "engine/residency/adapter_store.h"
#include "engine/stats.h"
#include "lora/apply/batch.h"

namespace motley::engine {

class Residency;

// The bytes of a request's adapters, or the promise of them.
class Claim {
 public:
  Claim(Claim&& other) noexcept;
  Claim& operator=(Claim&& other) noexcept;
  ~Claim();

  // Whether all bytes are there; the base's always are.
  bool ready() const;
  // Where a load failed.
  const Error* error() const;
  // Once ready: the mix of what is there now, whatever is loaded under the names later.
  Result<void> resolve(std::span<const ScaledAdapter> adapters);
  bool resolved() const { return resolved_; }
  // A sequence that does not begin after all will have the mix of when it does.
  void unresolve();
  // Its sequence begins; pushed back, it keeps the claim.
  void begin();
  bool begun() const { return begun_; }
  // Whether an adapter of it is closing.
  bool closing() const;
  // For another sequence of the same request.
  Claim again() const;
  const lora::Mix& mix() const { return mix_; }

 private:
  friend class Residency;
  Claim(Residency* residency, std::span<AdapterEntry* const> entries);
  void let_go();

  Residency* residency_ = nullptr;
  std::vector<AdapterEntry*> entries_;
  bool resolved_ = false;
  bool begun_ = false;
  lora::Mix mix_;
};

// Which adapters are where steps read them. Never promises more pages than there are: a claim is
// given as a whole, and only where all its adapters fit beside what is claimed, so that no two
// requests wait for each other's. Idle adapters make room by themselves; where that is not enough,
// make_room() closes some that are in use.
class Residency {
 public:
  // Adapters of a larger rank are refused; 0: none are.
  Residency(AdapterStore* store, int max_rank) : store_(store), max_rank_(max_rank) {}
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  using Entries = std::map<std::string, std::unique_ptr<AdapterEntry>, std::less<>>;
  const Entries& entries() const { return entries_; }
  // null where no request can name it.
  AdapterEntry* find(std::string_view name) const;

  using Answer = std::function<void(Result<void>)>;
  void load(const AdapterSpec& spec, bool replace, const Answer& answer);
  // Answers when no request names it any more.
  void unload(std::string_view name, const Answer& answer);
  // What was asked and is not answered yet is answered with this error.
  void give_up(const Error& error);

  // Takes what the store has done; unloaded adapters go, and loads are tried again. Whether
  // adapters came or went, or broke, or are whole again.
  bool collect();

  // Nothing where the adapters are closing, or find no room now beside what is kept.
  std::optional<Claim> claim(std::span<AdapterEntry* const> adapters);
  // Whether these fit if they are all that is there but for what is pinned.
  bool can_fit(std::span<AdapterEntry* const> adapters) const;
  // Closing adapters are ready again, and nothing is kept.
  void stop_making_room();
  // Before the first of the next two behind a stop.
  void rank_in_use();
  // AdapterRoom::price; nothing where no room can be made.
  std::optional<std::int64_t> price_of_room(std::span<AdapterEntry* const> adapters) const;
  // Others close so that these will find room, and what becomes free is kept for these.
  void make_room(std::span<AdapterEntry* const> adapters);
  bool making_room() const { return room_.making_room(); }

  // That any adapter changes which was ever loaded.
  const lora::SiteSet& sites() const { return sites_; }
  std::uint64_t loads() const { return loads_; }
  std::uint64_t failures() const { return failures_; }
  AdapterStore::Usage usage() const { return store_->usage(); }
  // Of the store, under way.
  std::size_t jobs() const { return jobs_.size(); }
  std::vector<AdapterInfo> describe() const;
  Result<void> check() const;

 private:
  friend class Claim;

  struct Pending {
    AdapterStore::Task task = AdapterStore::Task::read;
    AdapterSpec spec;
    bool replace = false;
    Answer answer;
  };

  // Where memory ends nothing has begun.
  Result<std::uint64_t> start(const Pending& pending, lora::ContentVersion version = {});
  Result<void> try_load(const AdapterSpec& spec, bool replace, const Answer& answer);
  Result<void> try_unload(std::string_view name, const Answer& answer);
  bool is_being_read(std::string_view name) const;
  // Brings its bytes, or leaves the error to its claims.
  void place(AdapterEntry& entry);
  // Whether what was read may become an entry: its rank, and its pages beside pinned adapters.
  Result<void> may_enter(const AdapterSpec& spec, const AdapterStore::Done& done) const;
  Result<void> enter(const Pending& pending, AdapterStore::Done& done);
  // Whether it has broken, or is whole again.
  bool take_placed(const std::string& name, AdapterStore::Done done);
  // The error for requests that wait for it; logged once.
  static Error failure_of(AdapterEntry& entry, const Error& why);
  void drop_claim(AdapterEntry& entry);
  void try_again(AdapterEntry& entry);
  // Unloaded adapters that no request names any more go; whether there were any.
  bool sweep();
  void see_room();
  // Pages that can't be had as long as pinned adapters are there.
  std::uint64_t pinned_pages() const;
  std::uint64_t pages_to_bring(std::span<AdapterEntry* const> adapters) const;

  AdapterStore* store_;
  int max_rank_;
  Entries entries_;
  std::map<std::uint64_t, Pending> jobs_;
  std::map<std::string, Answer, std::less<>> unloading_;
  std::uint64_t next_job_ = 1;
  std::uint64_t turns_ = 0;
  AdapterRoom<AdapterEntry*> room_;
  lora::SiteSet sites_;
  std::uint64_t loads_ = 0;
  std::uint64_t failures_ = 0;
};

}  // namespace motley::engine
