#include "engine/residency/residency.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/system/out_of_memory.h"
#include "base/units.h"

namespace motley::engine {

using Absent = AdapterEntry::Absent;
using Loading = AdapterEntry::Loading;
using Ready = AdapterEntry::Ready;
using Closing = AdapterEntry::Closing;
using Task = AdapterStore::Task;

Error version_conflict(std::string_view name, std::string_view present) {
  return {ErrorCode::conflict,
          present.empty() ? std::string("there is no such adapter now")
                          : cat("its version is ", quote(present), " now"),
          cat("adapter ", quote(name)), "look at the present version, and push on top of it"};
}

AdapterEntry* Residency::find(std::string_view name) const {
  AdapterEntry* const found = entries_.find(name);
  return found == nullptr || found->unloading ? nullptr : found;
}

void Residency::load(const AdapterSpec& spec, bool replace, const Answer& answer) {
  const Result<void> begun = within_memory([&] {
    return try_load({.task = Task::read, .spec = spec, .replace = replace, .answer = answer});
  });
  if (!begun.ok()) answer_with(answer, begun.error());
}

void Residency::hold(const AdapterSpec& spec, bool replace, const Answer& answer) {
  const Result<void> begun = within_memory([&] {
    return try_load(
        {.task = Task::read, .spec = spec, .replace = replace, .hold = true, .answer = answer});
  });
  if (!begun.ok()) answer_with(answer, begun.error());
}

bool Residency::settle(std::string_view name, bool enters) {
  std::optional<LoadJobs::Read> held = loads_.take_held(name);
  if (!held) return false;
  if (enters)
    enter(*std::move(held));
  else
    return_to_old_content(name);
  return true;
}

Result<void> Residency::try_load(const LoadJobs::Job& job) {
  const AdapterSpec& spec = job.spec;
  const std::string where = cat("adapter ", quote(spec.name));
  const bool under_way = loads_.reads(spec.name);
  const AdapterEntry* const known = entries_.find(spec.name);
  if (under_way || (known != nullptr && known->unloading))
    return Error(ErrorCode::busy, under_way ? "it is being loaded" : "it is being unloaded", where,
                 "try again when that is done");
  if (known != nullptr && !job.replace)
    return Error(ErrorCode::invalid_argument, "it has already been loaded", where,
                 "unload it first, or replace it in place (load_inplace)");
  MOTLEY_TRY_VOID(may_replace(spec));
  LoadJobs::Job counted = job;
  counted.is_new = known == nullptr;
  if (counted.is_new) MOTLEY_TRY_VOID(may_add(where));
  MOTLEY_TRY_VOID(loads_.start(counted));
  return {};
}

Result<void> Residency::may_add(const std::string& where) const {
  if (limits_.names == 0 || entries_.size() + loads_.new_names() < limits_.names) return {};
  return Error(ErrorCode::invalid_argument,
               cat("there are ", limits_.names, " adapters already, which is the limit"), where,
               "unload one, or start with a higher --max-adapters");
}

Result<void> Residency::may_replace(const AdapterSpec& spec) const {
  if (!spec.expected_version) return {};
  const AdapterEntry* const known = find(spec.name);
  const std::string_view present = known == nullptr ? std::string_view() : known->version_name;
  if (present == *spec.expected_version) return {};
  return version_conflict(spec.name, present);
}

Result<void> Residency::may_enter(const AdapterSpec& spec, const AdapterStore::Done& done) const {
  const std::string where = cat("adapter ", quote(spec.name));
  const AdapterEntry* const known = entries_.find(spec.name);
  if (known != nullptr && known->unloading)
    return Error(ErrorCode::busy, "it is being unloaded", where, "try again when that is done");
  MOTLEY_TRY_VOID(may_replace(spec));
  if (limits_.rank > 0 && done.rank > limits_.rank)
    return Error(
        ErrorCode::unsupported,
        cat("it has factors of rank ", done.rank, ", and steps have room for ", limits_.rank),
        where, "use a smaller one, or serve it on the CPU");
  const AdapterStore::Usage usage = store_->usage();
  const bool was_pinned = known != nullptr && known->spec.pinned;
  const std::uint64_t kept =
      pinned_pages_ + loads_.held_pinned_pages() - (was_pinned ? known->pages : 0);
  if (adapters_fit(done.pages, kept, usage.pages)) return {};
  const std::string_view left = kept > 0 ? " that pinned adapters leave" : "";
  return Error(
      ErrorCode::unsupported,
      cat("it takes ", format_bytes(done.pages * usage.page_bytes), ", and adapters have ",
          format_bytes((usage.pages - std::min(kept, usage.pages)) * usage.page_bytes), left),
      where, "give them more memory (--adapter-memory)");
}

void Residency::return_to_old_content(std::string_view name) {
  AdapterEntry* const entry = find(name);
  if (entry != nullptr && entry->claims > 0 && entry->is<Absent>() && entry->error() == nullptr)
    place(*entry);
}

Result<void> Residency::take_read(const LoadJobs::Job& job, AdapterStore::Done& done) {
  if (done.error) {
    return_to_old_content(job.spec.name);
    return std::move(*done.error).within(cat("adapter ", quote(job.spec.name)));
  }
  if (Result<void> may = may_enter(job.spec, done); !may.ok()) {
    return_to_old_content(job.spec.name);
    return may;
  }
  sites_.include(done.sites);
  const std::string& named = job.spec.version;
  LoadJobs::Read read{.spec = job.spec,
                      .done = {},
                      .version_name = named.empty() ? lora::to_string(done.version) : named,
                      .modules = done.sites.projections(),
                      .entry = AdapterNames::make(job.spec.name),
                      .is_new = job.is_new};
  read.done = std::move(done);
  if (job.hold)
    loads_.hold(std::move(read));
  else
    enter(std::move(read));
  return {};
}

void Residency::enter(LoadJobs::Read read) {
  AdapterSpec& spec = read.spec;
  AdapterStore::Done& done = read.done;
  AdapterEntry* const known = entries_.find(spec.name);
  AdapterEntry& entry = known != nullptr ? *known : entries_.add(std::move(read.entry));
  spec.expected_version.reset();
  const bool pinned = spec.pinned;
  const bool was_pinned = entry.spec.pinned;
  leave_pinned(entry);
  if (known != nullptr) ++load_stats_.replacements;
  if (entry.version != done.version) entry.state = Absent();
  entry.spec = std::move(spec);
  entry.version = done.version;
  entry.version_name = std::move(read.version_name);
  entry.broken = false;
  entry.pages = done.pages;
  entry.rank = done.rank;
  entry.modules = std::move(read.modules);
  entry.exclusive = std::move(done.exclusive);
  join_pinned(entry);
  note(entry);
  if (pinned && !was_pinned) ++entry.claims;
  if (!pinned && was_pinned) drop_claim(entry);
  if (entry.claims > 0 && entry.is<Absent>()) place(entry);
}

void Residency::unload(std::string_view name, const Answer& answer) {
  const Result<void> begun = within_memory([&] { return try_unload(name, answer); });
  if (!begun.ok()) return answer_with(answer, begun.error());
  sweep();
}

Result<void> Residency::try_unload(std::string_view name, const Answer& answer) {
  AdapterEntry* const entry = find(name);
  if (entry == nullptr)
    return Error(ErrorCode::not_found, cat("no adapter ", quote(name)), {},
                 "name one that is loaded");
  unloading_.emplace(name, answer);
  leave_pinned(*entry);
  entry->unloading = true;
  const bool was_pinned = std::exchange(entry->spec.pinned, false);
  note(*entry);
  if (was_pinned) drop_claim(*entry);
  return {};
}

void Residency::give_up(const Error& error) {
  loads_.answer_all(error);
  for (const auto& [name, answer] : std::exchange(unloading_, {})) answer_with(answer, error);
  loads_.drop_held();
}

void Residency::place(AdapterEntry& entry) {
  const Result<std::uint64_t> job = within_memory(
      [&] { return loads_.start({.task = Task::place, .spec = entry.spec}, entry.version); });
  if (job.ok()) {
    entry.state = Loading{.job = *job};
  } else {
    entry.state = Absent{.error = job.error()};
  }
  note(entry);
}

void Residency::drop_claim(AdapterEntry& entry) {
  MOTLEY_CHECK(entry.claims > 0, "a claim is dropped once");
  if (--entry.claims > 0) return;
  // A load in progress is allowed to finish.
  if (!entry.is<Loading>()) entry.state = Absent();
  note(entry);
}

bool Residency::take_placed(const std::string& name, AdapterStore::Done done) {
  AdapterEntry* const entry = entries_.find(name);
  if (entry == nullptr) return false;
  // It has been replaced meanwhile.
  const Loading* const loading = std::get_if<Loading>(&entry->state);
  if (loading == nullptr || loading->job != done.id) return false;
  entry->state = Absent();
  const bool changed = done.error ? take_failed(*entry, *done.error) : take_ready(*entry, done);
  note(*entry);
  return changed;
}

bool Residency::take_ready(AdapterEntry& entry, AdapterStore::Done& done) {
  ++load_stats_.loads;
  entry.load_order = ++last_load_;
  if (entry.claims > 0) entry.state = Ready{.handle = std::move(done.handle)};
  switches_ = switches_ || entry.spec.switches;
  return std::exchange(entry.broken, false);
}

bool Residency::take_failed(AdapterEntry& entry, const Error& why) {
  Absent& absent = std::get<Absent>(entry.state);
  const std::uint64_t in_use = store_->usage().pinned_pages;
  // Out of pages in the pool, not out of host memory.
  const bool no_room = why.code() == ErrorCode::out_of_memory && !is_out_of_memory_error(why);
  if (no_room && in_use > pinned_pages_) {
    if (entry.claims > 0) absent.retry_below = in_use;
    return false;
  }
  // Its files are being replaced: the new content is placed as soon as it is known.
  if (entry.claims > 0 && loads_.reads(entry.spec.name)) return false;
  ++load_stats_.failures;
  const bool was_broken = entry.broken;
  if (entry.claims == 0 && was_broken) return false;
  const Result<void> noted = within_memory([&] {
    Error failure = failure_of(entry, why);
    if (entry.claims > 0) absent.error = std::move(failure);
  });
  if (!noted.ok() && entry.claims > 0) absent.error = noted.error();
  return entry.broken != was_broken;
}

// Lack of memory and a failed device are reported as they are. Any other error means that files
// have changed since they were loaded: no request is to blame, and none may see their path.
Error Residency::failure_of(AdapterEntry& entry, const Error& why) {
  const std::string where = cat("adapter ", quote(entry.spec.name));
  if (why.code() == ErrorCode::out_of_memory || why.code() == ErrorCode::internal)
    return Error(why).within(where);
  if (!std::exchange(entry.broken, true))
    log::error("engine.adapter_broken", {{"adapter", entry.spec.name},
                                         {"path", entry.spec.path.native()},
                                         {"reason", why.message()},
                                         {"advice", "put its files back, or load it again"}});
  return {ErrorCode::unavailable, "its files can't be read as they were when it was loaded", where,
          "the server's log says why; put them back, or load it again in place"};
}

bool Residency::collect() {
  bool changed = false;
  while (std::optional<AdapterStore::Done> done = store_->take_done()) {
    const LoadJobs::Job job = loads_.take(done->id);
    if (!done->error) load_stats_.time.observe(done->took);
    switch (job.task) {
      case Task::read: {
        Result<void> entered = within_memory([&] { return take_read(job, *done); });
        changed = changed || entered.ok();
        if (job.answer) job.answer(std::move(entered));
        break;
      }
      case Task::place:
        changed = take_placed(job.spec.name, *std::move(done)) || changed;
        break;
    }
  }
  entries_.count_looks(busy_.each([this](AdapterEntry& entry) { try_again(entry); }));
  changed = sweep() || changed;
  see_room();
  return changed;
}

void Residency::try_again(AdapterEntry& entry) {
  const auto below = entry.retry_below();
  if (below && entry.claims > 0 && store_->usage().pinned_pages < *below) place(entry);
}

// The bytes stay in memory until the pages are needed.
bool Residency::sweep() {
  bool any = false;
  for (auto asked = unloading_.begin(); asked != unloading_.end();) {
    AdapterEntry& entry = *entries_.find(asked->first);
    if (entry.named > 0 || entry.claims > 0 || entry.is<Loading>()) {
      ++asked;
      continue;
    }
    traffic_.forget(entry);
    busy_.remove(entry);
    counted_.remove(entry);
    changes_.remove(entries_.take(asked->first));
    const Answer answer = std::move(asked->second);
    asked = unloading_.erase(asked);
    answer({});
    any = true;
  }
  return any;
}

void Residency::see_room() {
  const AdapterStore::Usage usage = store_->usage();
  std::uint64_t committed = usage.pinned_pages;
  entries_.count_looks(busy_.each([&](const AdapterEntry& entry) {
    if (entry.is<Loading>() || entry.retry_below()) committed += entry.pages;
  }));
  room_.see({.all = usage.pages, .committed = committed, .pinned = pinned_pages_});
}

void Residency::leave_pinned(const AdapterEntry& entry) {
  if (entry.spec.pinned) pinned_pages_ -= entry.pages;
}
void Residency::join_pinned(const AdapterEntry& entry) {
  if (entry.spec.pinned) pinned_pages_ += entry.pages;
}

std::uint64_t Residency::pages_to_bring(std::span<AdapterEntry* const> adapters) const {
  std::uint64_t pages = 0;
  for (const AdapterEntry* const entry : adapters) {
    if (entry->is<Absent>() && !entry->retry_below()) pages += entry->pages;
  }
  return pages;
}

std::optional<Claim> Residency::claim(std::span<AdapterEntry* const> adapters) {
  if (std::ranges::any_of(adapters, &AdapterEntry::is<Closing>)) return std::nullopt;
  const std::uint64_t bring = pages_to_bring(adapters);
  if (bring > 0 && !room_.fits(bring)) return std::nullopt;
  Claim claim(this, adapters);
  room_.promise(bring);
  for (AdapterEntry* const entry : adapters) {
    if (!entry->is<Absent>() || entry->retry_below()) continue;
    if (lora::Handle handle = store_->acquire(entry->spec.name, entry->version)) {
      entry->state = Ready{.handle = std::move(handle)};
      note(*entry);
    } else {
      place(*entry);
    }
  }
  return claim;
}

bool Residency::can_fit(std::span<AdapterEntry* const> adapters) const {
  std::uint64_t pages = 0;
  for (const AdapterEntry* const entry : adapters) {
    if (!entry->spec.pinned) pages += entry->pages;
  }
  return room_.can_fit(pages);
}

void Residency::rank_in_use() {
  room_.clear_in_use();
  entries_.count_looks(busy_.each([this](AdapterEntry& entry) {
    if (!entry.can_close()) return;
    room_.add({.adapter = &entry,
               .pages = entry.pages,
               .was_closing = std::get<Ready>(entry.state).was_closing,
               .begun = entry.begun,
               .claims = entry.claims,
               .load_order = entry.load_order});
  }));
  room_.rank();
}

std::optional<std::int64_t> Residency::price_of_room(
    std::span<AdapterEntry* const> adapters) const {
  // They are closing, and will be claimed again after the requests for which they close.
  if (std::ranges::any_of(adapters, &AdapterEntry::is<Closing>)) return std::nullopt;
  return room_.price({.pages = pages_to_bring(adapters), .adapters = adapters});
}

void Residency::make_room(std::span<AdapterEntry* const> adapters) {
  room_.make_room({.pages = pages_to_bring(adapters), .adapters = adapters},
                  [](AdapterEntry* entry) {
                    lora::Handle handle = std::move(std::get<Ready>(entry->state).handle);
                    entry->state = Closing{.handle = std::move(handle)};
                  });
}

void Residency::stop_making_room() {
  room_.stop();
  entries_.count_looks(busy_.each([this](AdapterEntry& entry) {
    if (auto* const closing = std::get_if<Closing>(&entry.state)) {
      lora::Handle handle = std::move(closing->handle);
      entry.state = Ready{.handle = std::move(handle), .fresh = false, .was_closing = true};
      note(entry);
    } else if (auto* const ready = std::get_if<Ready>(&entry.state)) {
      ready->was_closing = false;
    }
  }));
}

// Adapters that are idle, or pinned and ready, concern no step.
void Residency::note(AdapterEntry& entry) {
  changes_.note(entry);
  const bool may_close = entry.is<Ready>() && !entry.spec.pinned;
  if (may_close || entry.is<Closing>() || entry.is<Loading>() || entry.retry_below())
    busy_.insert(entry);
  else
    busy_.remove(entry);
}

void Residency::clear_counts() {
  entries_.count_looks(counted_.each([this](AdapterEntry& entry) {
    entry.running = entry.waiting = 0;
    counted_.remove(entry);
    changes_.note(entry);
  }));
}

void Residency::count(AdapterEntry& entry, std::int64_t AdapterEntry::* sequences) {
  ++(entry.*sequences);
  counted_.insert(entry);
  changes_.note(entry);
}

// What must not be; empty if all is well.
std::string_view Residency::wrong_with(const AdapterEntry& entry) const {
  if (const lora::Handle* const handle = entry.handle(); handle != nullptr) {
    if (!*handle) return "is ready without bytes";
    if (entry.claims == 0) return "is held without a claim";
    if ((*handle)->version() != entry.version) return "has bytes of other content";
    if (!entry.spec.pinned && !entry.busy.listed) return "is in use and in no list";
  }
  if (entry.is<Loading>() && !loads_.contains(std::get<Loading>(entry.state).job))
    return "is loading without a job";
  if (entry.retry_below() && !entry.busy.listed) return "waits for pages and is in no list";
  if (entry.is<Closing>() && !room_.making_room()) return "is closing for no other";
  if (entry.claims < 0 || entry.named < 0) return "counts less than none";
  if (entry.begun < 0 || entry.begun > entry.claims)
    return "counts other claims that have begun than there are";
  return {};
}

Result<void> Residency::check() const {
  std::optional<Error> first;
  std::uint64_t pinned = 0;
  entries_.each([&](const std::string& name, const AdapterEntry& entry) {
    if (entry.spec.pinned) pinned += entry.pages;
    if (first) return;
    if (const std::string_view wrong = wrong_with(entry); !wrong.empty())
      first = Error(ErrorCode::internal, cat("adapter ", quote(name), " ", wrong));
  });
  if (first) return *std::move(first);
  if (pinned != pinned_pages_)
    return Error(ErrorCode::internal,
                 cat(pinned, " pages are of pinned adapters, and ", pinned_pages_, " are counted"));
  if (store_->usage().pinned_pages > store_->usage().pages)
    return Error(ErrorCode::internal, "more pages of adapters are in use than there are");
  return {};
}

}  // namespace motley::engine
