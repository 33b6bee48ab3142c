#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/system/clock.h"
#include "engine/requests/adapter_spec.h"
#include "engine/stats/stats.h"
#include "lora/files/adapter.h"
#include "lora/pages/pool.h"

namespace motley::engine {

struct AdapterEntry;

// An entry's place in a list (adapter_names.h).
struct EntryLink {
  AdapterEntry* before = nullptr;
  AdapterEntry* after = nullptr;
  bool listed = false;
};

// An adapter as the engine knows it. docs/design/engine.md maps its states to those of pools, of
// requests and of replicas.
struct AdapterEntry {
  struct Absent {
    std::optional<Error> error;  // why the last load failed, while there are claims
    // Set if the last load found no run of pages while this many were in use: retried with fewer.
    std::optional<std::uint64_t> retry_below;
  };
  struct Loading {
    std::uint64_t job = 0;
  };
  struct Ready {
    lora::Handle handle;
    bool fresh = true;  // no sequence has begun with it since it was loaded, so it does not close
    bool was_closing = false;  // before the last stop_making_room()
  };
  // Accepts no new claims, so that it becomes idle.
  struct Closing {
    lora::Handle handle;
  };
  using State = std::variant<Absent, Loading, Ready, Closing>;

  AdapterSpec spec;
  lora::ContentVersion version;
  std::string version_name;  // for users: as its maker names it, or the content's in digits
  std::uint64_t pages = 0;
  int rank = 0;                           // the largest rank of its factors
  std::vector<std::string_view> modules;  // the kinds of maps that it changes
  std::string exclusive;                  // why it cannot be mixed or scaled; empty if it can

  State state;
  std::uint64_t load_order = 0;  // grows with each load
  bool unloading = false;        // new requests cannot name it
  bool broken = false;           // its files could not be read as they were when it was loaded

  std::int64_t claims = 0;   // that keep it ready, or wait for that
  std::int64_t begun = 0;    // of these, by sequences that have begun
  std::int64_t named = 0;    // by requests that have not ended
  std::int64_t running = 0;  // sequences, as last counted
  std::int64_t waiting = 0;
  std::int32_t demand = -1;  // AdapterLine's

  // In the residency's lists:
  EntryLink busy;     // each step looks at it
  EntryLink counted;  // running or waiting is not 0
  EntryLink changed;  // since it was published

  std::unique_ptr<AdapterTraffic> traffic;       // see Residency::traffic_of
  std::uint64_t non_finite_logits = 0;           // requests that failed because of it
  std::optional<TimePoint> non_finite_reported;  // in the log

  template <class S>
  bool is() const {
    return std::holds_alternative<S>(state);
  }
  bool can_close() const {
    const Ready* const ready = std::get_if<Ready>(&state);
    return ready != nullptr && !ready->fresh && claims > 0 && !spec.pinned;
  }
  // Null unless it is ready or closing.
  const lora::Handle* handle() const {
    if (const auto* const ready = std::get_if<Ready>(&state)) return &ready->handle;
    if (const auto* const closing = std::get_if<Closing>(&state)) return &closing->handle;
    return nullptr;
  }
  const Error* error() const {
    const auto* const absent = std::get_if<Absent>(&state);
    return absent != nullptr && absent->error ? &*absent->error : nullptr;
  }
  // Absent, and a load waits until fewer pages than this are in use.
  std::optional<std::uint64_t> retry_below() const {
    const auto* const absent = std::get_if<Absent>(&state);
    return absent != nullptr ? absent->retry_below : std::nullopt;
  }
};

// The adapters that a request names; their entries exist as long as this does.
class NamedAdapters {
 public:
  NamedAdapters() = default;  // the base
  explicit NamedAdapters(std::vector<AdapterEntry*> entries) : entries_(std::move(entries)) {
    for (AdapterEntry* const entry : entries_) ++entry->named;
  }
  NamedAdapters(NamedAdapters&& other) noexcept : entries_(std::exchange(other.entries_, {})) {}
  NamedAdapters& operator=(NamedAdapters&& other) noexcept {
    std::swap(entries_, other.entries_);
    return *this;
  }
  ~NamedAdapters() {
    for (AdapterEntry* const entry : entries_) --entry->named;
  }

  std::span<AdapterEntry* const> entries() const { return entries_; }

 private:
  std::vector<AdapterEntry*> entries_;
};

}  // namespace motley::engine
