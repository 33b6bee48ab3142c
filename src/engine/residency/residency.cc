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

namespace {

// Always answers: if memory is too short for the error, with out_of_memory.
void answer_with(const Residency::Answer& answer, const Error& error) {
  std::optional<Result<void>> reply;
  if (!within_memory([&] { reply = error; }).ok()) reply = out_of_memory_error();
  answer(*std::move(reply));
}

}  // namespace

Claim::Claim(Residency* residency, std::span<AdapterEntry* const> entries)
    : residency_(residency), entries_(entries.begin(), entries.end()) {
  for (AdapterEntry* const entry : entries_) ++entry->claims;
}

Claim::Claim(Claim&& other) noexcept
    : residency_(other.residency_),
      entries_(std::exchange(other.entries_, {})),
      resolved_(other.resolved_),
      begun_(other.begun_),
      mix_(std::exchange(other.mix_, {})) {}

Claim& Claim::operator=(Claim&& other) noexcept {
  std::swap(residency_, other.residency_);
  std::swap(entries_, other.entries_);
  std::swap(resolved_, other.resolved_);
  std::swap(begun_, other.begun_);
  std::swap(mix_, other.mix_);
  return *this;
}

Claim::~Claim() { let_go(); }

void Claim::let_go() {
  mix_ = {};
  for (AdapterEntry* const entry : entries_) {
    if (begun_) --entry->begun;
    residency_->drop_claim(*entry);
  }
  entries_.clear();
}

bool Claim::ready() const {
  return resolved_ || std::ranges::all_of(entries_, [](const AdapterEntry* entry) {
           return entry->handle() != nullptr;
         });
}

const Error* Claim::error() const {
  if (resolved_) return nullptr;
  for (const AdapterEntry* const entry : entries_) {
    if (const Error* const error = entry->error(); error != nullptr) return error;
  }
  return nullptr;
}

Result<void> Claim::resolve(std::span<const lora::ScaledAdapter> adapters) {
  MOTLEY_CHECK(ready() && !resolved_ && adapters.size() == entries_.size(),
               "a claim is resolved once, when its adapters are there");
  std::vector<lora::Mix::Part> parts;
  for (std::size_t i = 0; i < adapters.size(); ++i)
    parts.push_back({.adapter = *entries_[i]->handle(), .scale = adapters[i].scale});
  MOTLEY_TRY(mix_, lora::Mix::make(parts));
  resolved_ = true;
  return {};
}

void Claim::unresolve() {
  mix_ = {};
  resolved_ = false;
}

void Claim::begin() {
  if (std::exchange(begun_, true)) return;
  for (AdapterEntry* const entry : entries_) {
    ++entry->begun;
    if (auto* const ready = std::get_if<Ready>(&entry->state)) ready->fresh = false;
  }
}

bool Claim::closing() const { return std::ranges::any_of(entries_, &AdapterEntry::is<Closing>); }

Claim Claim::again() const {
  Claim claim(residency_, entries_);
  if (begun_) claim.begin();
  claim.resolved_ = resolved_;
  claim.mix_ = mix_;
  return claim;
}

AdapterEntry* Residency::find(std::string_view name) const {
  AdapterEntry* const found = entries_.find(name);
  return found == nullptr || found->unloading ? nullptr : found;
}

Result<std::uint64_t> Residency::start(const Pending& pending, lora::ContentVersion version) {
  const std::uint64_t id = next_job_++;
  const bool is_read = pending.task == Task::read;
  const Result<void> begun = within_memory([&] {
    AdapterStore::Job job{.id = id,
                          .task = pending.task,
                          .spec = pending.spec,
                          .version = version,
                          .keeps_old = pending.hold && entries_.find(pending.spec.name) != nullptr};
    jobs_.emplace(id, pending);
    if (is_read) being_read_.insert(pending.spec.name);
    store_->begin(std::move(job));
  });
  if (!begun.ok()) {
    jobs_.erase(id);
    if (is_read) being_read_.erase(pending.spec.name);
    return begun.error();
  }
  if (pending.is_new) ++new_names_;
  return id;
}

bool Residency::is_being_read(std::string_view name) const {
  return held_.contains(name) || being_read_.contains(name);
}

void Residency::load(const AdapterSpec& spec, bool replace, const Answer& answer) {
  const Result<void> begun = within_memory([&] {
    return try_load({.task = Task::read, .spec = spec, .replace = replace, .answer = answer});
  });
  if (!begun.ok()) answer_with(answer, begun.error());
}

void Residency::hold(const AdapterSpec& spec, bool replace, const Answer& answer) {
  // What was held when memory ran out before it was settled.
  drop_held(spec.name);
  const Result<void> begun = within_memory([&] {
    return try_load(
        {.task = Task::read, .spec = spec, .replace = replace, .hold = true, .answer = answer});
  });
  if (!begun.ok()) answer_with(answer, begun.error());
}

void Residency::drop_held(std::string_view name) {
  const auto found = held_.find(name);
  if (found == held_.end()) return;
  if (found->second.is_new) --new_names_;
  held_.erase(found);
}

void Residency::settle(std::string_view name, bool enters, const Answer& answer) {
  const auto found = held_.find(name);
  if (found == held_.end())
    return answer_with(answer, Error(ErrorCode::internal, "an adapter that is not held"));
  auto held = held_.extract(found);
  if (held.mapped().is_new) --new_names_;
  if (!enters) {
    return_to_old_content(held.key());
    return answer({});
  }
  Result<void> entered =
      within_memory([&] { return enter(std::move(held.mapped().spec), held.mapped().done); });
  if (!entered.ok()) return_to_old_content(held.key());
  answer(std::move(entered));
}

Result<void> Residency::try_load(const Pending& pending) {
  const AdapterSpec& spec = pending.spec;
  const std::string where = cat("adapter ", quote(spec.name));
  const bool under_way = is_being_read(spec.name);
  const AdapterEntry* const known = entries_.find(spec.name);
  if (under_way || (known != nullptr && known->unloading))
    return Error(ErrorCode::busy, under_way ? "it is being loaded" : "it is being unloaded", where,
                 "try again when that is done");
  if (known != nullptr && !pending.replace)
    return Error(ErrorCode::invalid_argument, "it has already been loaded", where,
                 "unload it first, or replace it in place (load_inplace)");
  Pending counted = pending;
  counted.is_new = known == nullptr;
  if (counted.is_new) MOTLEY_TRY_VOID(may_add(where));
  MOTLEY_TRY_VOID(start(counted));
  return {};
}

Result<void> Residency::may_add(const std::string& where) const {
  if (limits_.names == 0 || entries_.size() + new_names_ < limits_.names) return {};
  return Error(ErrorCode::invalid_argument,
               cat("there are ", limits_.names, " adapters already, which is the limit"), where,
               "unload one, or start with a higher --max-adapters");
}

Result<void> Residency::may_enter(const AdapterSpec& spec, const AdapterStore::Done& done) const {
  const std::string where = cat("adapter ", quote(spec.name));
  const AdapterEntry* const known = entries_.find(spec.name);
  if (known != nullptr && known->unloading)
    return Error(ErrorCode::busy, "it is being unloaded", where, "try again when that is done");
  if (limits_.rank > 0 && done.rank > limits_.rank)
    return Error(
        ErrorCode::unsupported,
        cat("it has factors of rank ", done.rank, ", and steps have room for ", limits_.rank),
        where, "use a smaller one, or serve it on the CPU");
  const AdapterStore::Usage usage = store_->usage();
  const bool was_pinned = known != nullptr && known->spec.pinned;
  const std::uint64_t kept = pinned_pages_ + held_pinned_pages() - (was_pinned ? known->pages : 0);
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

Result<void> Residency::take_read(const Pending& pending, AdapterStore::Done& done) {
  if (done.error) {
    return_to_old_content(pending.spec.name);
    return std::move(*done.error).within(cat("adapter ", quote(pending.spec.name)));
  }
  if (Result<void> may = may_enter(pending.spec, done); !may.ok()) {
    return_to_old_content(pending.spec.name);
    return may;
  }
  if (!pending.hold) return enter(pending.spec, done);
  sites_.include(done.sites);
  held_.emplace(pending.spec.name, Held{pending.spec, std::move(done), pending.is_new});
  if (pending.is_new) ++new_names_;
  return {};
}

Result<void> Residency::enter(AdapterSpec spec, AdapterStore::Done& done) {
  // First what can fail.
  sites_.include(done.sites);
  std::vector<std::string_view> modules = done.sites.projections();
  AdapterEntry* const known = entries_.find(spec.name);
  AdapterEntry& entry = known != nullptr ? *known : entries_.add(spec.name);
  const bool pinned = spec.pinned;
  const bool was_pinned = entry.spec.pinned;
  leave_pinned(entry);
  if (known != nullptr) ++replacements_;
  if (entry.version != done.version) entry.state = Absent();
  entry.spec = std::move(spec);
  entry.version = done.version;
  entry.broken = false;
  entry.pages = done.pages;
  entry.rank = done.rank;
  entry.modules = std::move(modules);
  entry.exclusive = std::move(done.exclusive);
  join_pinned(entry);
  note(entry);
  if (pinned && !was_pinned) ++entry.claims;
  if (!pinned && was_pinned) drop_claim(entry);
  if (entry.claims > 0 && entry.is<Absent>()) place(entry);
  return {};
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
  for (auto& [id, job] : jobs_) {
    if (job.answer) answer_with(std::exchange(job.answer, nullptr), error);
  }
  for (const auto& [name, answer] : std::exchange(unloading_, {})) answer_with(answer, error);
  while (!held_.empty()) drop_held(std::string_view(held_.begin()->first));
}

void Residency::place(AdapterEntry& entry) {
  const Result<std::uint64_t> job = within_memory(
      [&] { return start({.task = Task::place, .spec = entry.spec}, entry.version); });
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
  ++loads_;
  entry.turn = ++turns_;
  if (entry.claims > 0) entry.state = Ready{.handle = std::move(done.handle)};
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
  if (entry.claims > 0 && is_being_read(entry.spec.name)) return false;
  ++failures_;
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
    const auto found = jobs_.find(done->id);
    MOTLEY_CHECK(found != jobs_.end(), "the store does each job once");
    Pending pending = std::move(found->second);
    jobs_.erase(found);
    if (!done->error) load_time_.observe(done->took);
    switch (pending.task) {
      case Task::read: {
        being_read_.erase(pending.spec.name);
        if (pending.is_new) --new_names_;
        Result<void> entered = within_memory([&] { return take_read(pending, *done); });
        changed = changed || entered.ok();
        if (pending.answer) pending.answer(std::move(entered));
        break;
      }
      case Task::place:
        changed = take_placed(pending.spec.name, *std::move(done)) || changed;
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
    if (entry.traffic != nullptr) --counted_adapters_;
    busy_.remove(entry);
    counted_.remove(entry);
    changed_.remove(entry);
    removed_.insert(entries_.take(asked->first));
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

std::uint64_t Residency::held_pinned_pages() const {
  std::uint64_t pages = 0;
  for (const auto& [name, held] : held_) {
    if (held.spec.pinned) pages += held.done.pages;
  }
  return pages;
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
               .turn = entry.turn});
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
  changed_.insert(entry);
  const bool may_close = entry.is<Ready>() && !entry.spec.pinned;
  if (may_close || entry.is<Closing>() || entry.is<Loading>() || entry.retry_below())
    busy_.insert(entry);
  else
    busy_.remove(entry);
}

// If memory is short, it is counted with the others until the next request.
void Residency::count_apart(AdapterEntry& entry) {
  if (entry.traffic != nullptr || counted_adapters_ >= limits_.counted) return;
  const Result<void> made =
      within_memory([&] { entry.traffic = std::make_unique<AdapterTraffic>(); });
  if (made.ok()) ++counted_adapters_;
}

void Residency::clear_counts() {
  entries_.count_looks(counted_.each([this](AdapterEntry& entry) {
    entry.running = entry.waiting = 0;
    counted_.remove(entry);
    changed_.insert(entry);
  }));
}

void Residency::count(AdapterEntry& entry, std::int64_t AdapterEntry::* sequences) {
  ++(entry.*sequences);
  counted_.insert(entry);
  changed_.insert(entry);
}

void Residency::each_change(FunctionRef<void(const std::string&, const AdapterEntry*)> see) const {
  for (const auto& [name, entry] : removed_) {
    if (entries_.find(name) == nullptr) see(name, nullptr);
  }
  entries_.count_looks(
      changed_.each([&](const AdapterEntry& entry) { see(entry.spec.name, &entry); }));
}

void Residency::forget_changes() {
  removed_.clear();
  changed_.each([this](AdapterEntry& entry) { changed_.remove(entry); });
}

AdapterInfo Residency::describe(const std::string& name, const AdapterEntry& entry) {
  AdapterState state = AdapterState::absent;
  if (entry.is<Loading>()) state = AdapterState::loading;
  if (entry.handle() != nullptr) state = AdapterState::ready;
  if (entry.unloading) state = AdapterState::closing;
  return {.name = name,
          .path = entry.spec.path.string(),
          .version = lora::to_string(entry.version),
          .state = state,
          .pinned = entry.spec.pinned,
          .rank = entry.rank,
          .modules = entry.modules,
          .pages = entry.pages,
          .broken = entry.broken,
          .non_finite_logits = entry.non_finite_logits,
          .running = entry.running,
          .waiting = entry.waiting,
          .traffic = entry.traffic == nullptr
                         ? nullptr
                         : std::make_shared<const AdapterTraffic>(*entry.traffic)};
}

// What must not be; empty if all is well.
std::string_view Residency::wrong_with(const AdapterEntry& entry) const {
  if (const lora::Handle* const handle = entry.handle(); handle != nullptr) {
    if (!*handle) return "is ready without bytes";
    if (entry.claims == 0) return "is held without a claim";
    if ((*handle)->version() != entry.version) return "has bytes of other content";
    if (!entry.spec.pinned && !entry.busy.listed) return "is in use and in no list";
  }
  if (entry.is<Loading>() && !jobs_.contains(std::get<Loading>(entry.state).job))
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
