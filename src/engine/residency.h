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
#include "engine/adapter_store.h"
#include "engine/request.h"
#include "engine/stats.h"
#include "lora/batch.h"

namespace motley::engine {

// An adapter as the engine knows it.
struct AdapterEntry {
  AdapterSpec spec;
  lora::ContentVersion version;
  std::uint64_t pages = 0;
  int rank = 0;           // the largest of its factors
  std::string exclusive;  // why it can't be mixed or scaled; empty where it can

  enum class Bytes : std::uint8_t { absent, loading, ready };
  Bytes bytes = Bytes::absent;
  lora::Handle handle;         // while ready
  std::uint64_t job = 0;       // while loading
  std::optional<Error> error;  // why the last load failed, as long as somebody claims it
  // The last load found no room in one piece while this many pages were in use: again with fewer.
  std::optional<std::uint64_t> retry_below;

  std::int64_t claims = 0;   // that hold it ready, or wait until it is
  std::int64_t begun = 0;    // of these, of sequences that have begun
  std::int64_t named = 0;    // by requests that have not ended
  std::int64_t running = 0;  // sequences, as last counted
  std::int64_t waiting = 0;
  bool draining = false;     // unloaded: nobody new can name it
  bool fresh = false;        // ready, and nobody has begun with it since it came: it does not close
  bool closing = false;      // takes no new claims, so that it becomes idle
  bool was_closing = false;  // before the last stop_making_room()
  std::uint64_t turn = 0;    // when it was loaded last
  std::int32_t want = -1;    // AdapterLine's
};

class Residency;

// The adapters that a request names, for its whole life: so long they are not forgotten.
class NamedAdapters {
 public:
  NamedAdapters() = default;  // the base
  explicit NamedAdapters(std::vector<AdapterEntry*> entries);
  NamedAdapters(NamedAdapters&& other) noexcept : entries_(std::exchange(other.entries_, {})) {}
  NamedAdapters& operator=(NamedAdapters&& other) noexcept;
  ~NamedAdapters();

  std::span<AdapterEntry* const> entries() const { return entries_; }

 private:
  std::vector<AdapterEntry*> entries_;
};

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
  // Who does not begin after all will have the mix of when it does.
  void unresolve();
  // Its sequence begins; pushed back, it keeps the claim.
  void begin();
  bool begun() const { return begun_; }
  // Whether an adapter of it is.
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
  Residency(AdapterStore* store, int most_rank) : store_(store), most_rank_(most_rank) {}
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  using Entries = std::map<std::string, std::unique_ptr<AdapterEntry>, std::less<>>;
  const Entries& entries() const { return entries_; }
  // null where nobody can name it.
  AdapterEntry* find(std::string_view name) const;

  using Answer = std::function<void(Result<void>)>;
  void load(AdapterSpec spec, bool replace, Answer answer);
  // Answers when nobody names it any more.
  void unload(std::string_view name, Answer answer);
  // What was asked and is not answered yet is answered with this error.
  void give_up(const Error& error);

  // Takes what the store has done, and looks at who can go and what can be tried again. Whether
  // adapters came or went.
  bool collect();

  // Nothing where the adapters are closing, or find no room now beside what is kept.
  std::optional<Claim> claim(std::span<AdapterEntry* const> adapters);
  // Whether these fit if they are all that is there but for what is pinned.
  bool can_fit(std::span<AdapterEntry* const> adapters) const;
  // Of the adapters that would have to close so that these find room beside those for whom room is
  // made already: how many claims that have begun the one has that has the most, or 1. Nothing
  // where no room can be made.
  std::optional<std::int64_t> price_of_room(std::span<AdapterEntry* const> adapters) const;
  // So that these will find room: others, with as few claims that have begun as can be, take no new
  // ones until stop, and what becomes free is kept for these. Who was closed before a stop is
  // closed first.
  void make_room(std::span<AdapterEntry* const> adapters);
  void stop_making_room();
  // Who is in use, for the two above: once behind a stop, before the first of them.
  void rank_in_use();
  bool making_room() const { return kept_ > 0; }

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

  std::uint64_t start(Pending pending, lora::ContentVersion version = {});
  bool is_being_read(std::string_view name) const;
  void place(AdapterEntry& entry);
  Result<void> enter(const Pending& pending, AdapterStore::Done done);
  void take_placed(const std::string& name, AdapterStore::Done done);
  void make_absent(AdapterEntry& entry);
  void drop_claim(AdapterEntry& entry);
  void try_again(AdapterEntry& entry);
  // Unloaded adapters that nobody names any more go; whether there were any.
  bool sweep();
  void refresh_committed();
  // Pages that can't be had as long as pinned adapters are there.
  std::uint64_t pinned_pages() const;
  std::uint64_t pages_to_bring(std::span<AdapterEntry* const> adapters) const;
  // How many at the front of in_use_ must close, but for these themselves, so that these find room
  // beside what is kept; nothing where all are not enough.
  std::optional<std::size_t> how_many_close(std::span<AdapterEntry* const> for_these) const;

  AdapterStore* store_;
  int most_rank_;
  Entries entries_;
  std::map<std::uint64_t, Pending> jobs_;
  std::map<std::string, Answer, std::less<>> unloading_;
  std::uint64_t next_job_ = 1;
  std::uint64_t turns_ = 0;
  std::uint64_t committed_ = 0;  // pages in use or promised
  std::uint64_t all_pages_ = 0;
  std::uint64_t pinned_ = 0;   // pages of pinned adapters, there or not
  std::uint64_t kept_ = 0;     // pages for whom room is made
  std::uint64_t closing_ = 0;  // pages of adapters that close
  // That could close, who is to close first in front, and their pages.
  std::vector<AdapterEntry*> in_use_;
  std::uint64_t closable_ = 0;
  lora::SiteSet sites_;
  std::uint64_t loads_ = 0;
  std::uint64_t failures_ = 0;
};

}  // namespace motley::engine
