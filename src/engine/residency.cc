#include "engine/residency.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/units.h"
#include "engine/admission.h"

namespace motley::engine {

using Bytes = AdapterEntry::Bytes;
using Task = AdapterStore::Task;

namespace {

bool is_among(std::span<AdapterEntry* const> adapters, const AdapterEntry* entry) {
  return std::ranges::find(adapters, entry) != adapters.end();
}

}  // namespace

NamedAdapters::NamedAdapters(std::vector<AdapterEntry*> entries) : entries_(std::move(entries)) {
  for (AdapterEntry* const entry : entries_) ++entry->named;
}

NamedAdapters& NamedAdapters::operator=(NamedAdapters&& other) noexcept {
  std::swap(entries_, other.entries_);
  return *this;
}

NamedAdapters::~NamedAdapters() {
  for (AdapterEntry* const entry : entries_) --entry->named;
}

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
           return entry->bytes == Bytes::ready;
         });
}

const Error* Claim::error() const {
  if (resolved_) return nullptr;
  for (const AdapterEntry* const entry : entries_) {
    if (entry->error) return &*entry->error;
  }
  return nullptr;
}

Result<void> Claim::resolve(std::span<const ScaledAdapter> adapters) {
  MOTLEY_CHECK(ready() && !resolved_ && adapters.size() == entries_.size(),
               "a claim is resolved once, when its adapters are there");
  std::vector<lora::Mix::Part> parts;
  for (std::size_t i = 0; i < adapters.size(); ++i)
    parts.push_back({.adapter = entries_[i]->handle, .scale = adapters[i].scale});
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
    entry->fresh = false;
  }
}

bool Claim::closing() const { return std::ranges::any_of(entries_, &AdapterEntry::closing); }

Claim Claim::again() const {
  Claim claim(residency_, entries_);
  if (begun_) claim.begin();
  claim.resolved_ = resolved_;
  claim.mix_ = mix_;
  return claim;
}

AdapterEntry* Residency::find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() || found->second->draining ? nullptr : found->second.get();
}

std::uint64_t Residency::start(Pending pending, lora::ContentVersion version) {
  const std::uint64_t id = next_job_++;
  AdapterStore::Job job{.id = id, .task = pending.task, .spec = pending.spec, .version = version};
  jobs_.emplace(id, std::move(pending));
  store_->begin(std::move(job));
  return id;
}

bool Residency::is_being_read(std::string_view name) const {
  return std::ranges::any_of(jobs_, [&](const auto& job) {
    return job.second.task == Task::read && job.second.spec.name == name;
  });
}

void Residency::load(AdapterSpec spec, bool replace, Answer answer) {
  const std::string where = cat("adapter ", quote(spec.name));
  const bool under_way = is_being_read(spec.name);
  const auto known = entries_.find(spec.name);
  if (under_way || (known != entries_.end() && known->second->draining)) {
    answer(Error(ErrorCode::busy, under_way ? "it is being loaded" : "it is being unloaded", where,
                 "try again when that is done"));
    return;
  }
  if (known != entries_.end() && !replace) {
    answer(Error(ErrorCode::invalid_argument, "it is loaded already", where,
                 "unload it first, or replace it in place"));
    return;
  }
  start({.task = Task::read,
         .spec = std::move(spec),
         .replace = replace,
         .answer = std::move(answer)});
}

Result<void> Residency::enter(const Pending& pending, AdapterStore::Done done) {
  const AdapterSpec& spec = pending.spec;
  const std::string where = cat("adapter ", quote(spec.name));
  if (done.error) {
    // Who waited for the new content gets what can still be had.
    if (AdapterEntry* const entry = find(spec.name);
        entry != nullptr && entry->claims > 0 && entry->bytes == Bytes::absent && !entry->error)
      place(*entry);
    return std::move(*done.error).within(where);
  }
  if (const auto known = entries_.find(spec.name);
      known != entries_.end() && known->second->draining)
    return Error(ErrorCode::busy, "it is being unloaded", where, "try again when that is done");
  if (most_rank_ > 0 && done.rank > most_rank_)
    return Error(
        ErrorCode::unsupported,
        cat("it has factors of rank ", done.rank, ", and steps have room for ", most_rank_), where,
        "use a smaller one, or serve it on the CPU");
  const AdapterStore::Usage usage = store_->usage();
  const AdapterEntry* const before = find(spec.name);
  const std::uint64_t own = before != nullptr && before->spec.pinned ? before->pages : 0;
  const std::uint64_t kept = pinned_pages() - own;
  if (!adapters_fit(done.pages, kept, usage.pages)) {
    const std::string_view left = kept > 0 ? " that pinned adapters leave" : "";
    return Error(
        ErrorCode::unsupported,
        cat("it takes ", format_bytes(done.pages * usage.page_bytes), ", and adapters have ",
            format_bytes((usage.pages - std::min(kept, usage.pages)) * usage.page_bytes), left),
        where, "give them more memory (--adapter-memory)");
  }
  std::unique_ptr<AdapterEntry>& known = entries_[spec.name];
  if (known == nullptr) known = std::make_unique<AdapterEntry>();
  AdapterEntry& entry = *known;
  const bool was_pinned = entry.spec.pinned;
  if (entry.version != done.version) make_absent(entry);
  entry.spec = spec;
  entry.version = done.version;
  entry.pages = done.pages;
  entry.rank = done.rank;
  entry.exclusive = std::move(done.exclusive);
  sites_.include(done.sites);
  if (spec.pinned && !was_pinned) ++entry.claims;
  if (!spec.pinned && was_pinned) drop_claim(entry);
  if (entry.claims > 0 && entry.bytes == Bytes::absent) place(entry);
  return {};
}

void Residency::unload(std::string_view name, Answer answer) {
  AdapterEntry* const entry = find(name);
  if (entry == nullptr) {
    answer(Error(ErrorCode::not_found, cat("no adapter ", quote(name)), {},
                 "name one that is loaded"));
    return;
  }
  entry->draining = true;
  if (std::exchange(entry->spec.pinned, false)) drop_claim(*entry);
  unloading_.emplace(name, std::move(answer));
  sweep();
}

void Residency::give_up(const Error& error) {
  for (auto& [id, job] : jobs_) {
    if (job.answer) std::exchange(job.answer, nullptr)(error);
  }
  for (auto& [name, answer] : std::exchange(unloading_, {})) answer(error);
}

void Residency::place(AdapterEntry& entry) {
  entry.error.reset();
  entry.retry_below.reset();
  entry.bytes = Bytes::loading;
  entry.job = start({.task = Task::place, .spec = entry.spec}, entry.version);
}

void Residency::make_absent(AdapterEntry& entry) {
  entry.bytes = Bytes::absent;
  entry.fresh = false;
  entry.handle = {};
  entry.job = 0;
  entry.error.reset();
  entry.retry_below.reset();
}

void Residency::drop_claim(AdapterEntry& entry) {
  MOTLEY_CHECK(entry.claims > 0, "a claim is dropped once");
  if (--entry.claims > 0) return;
  // What is on its way arrives first.
  if (entry.bytes != Bytes::loading) make_absent(entry);
}

void Residency::take_placed(const std::string& name, AdapterStore::Done done) {
  const auto found = entries_.find(name);
  // Replaced since, or gone.
  if (found == entries_.end() || found->second->job != done.id) return;
  AdapterEntry& entry = *found->second;
  entry.job = 0;
  if (!done.error) {
    ++loads_;
    entry.handle = std::move(done.handle);
    entry.bytes = Bytes::ready;
    entry.fresh = true;
    entry.turn = ++turns_;
    if (entry.claims == 0) make_absent(entry);
    return;
  }
  entry.bytes = Bytes::absent;
  const std::uint64_t in_use = store_->usage().pinned_pages;
  if (done.error->code() == ErrorCode::out_of_memory && in_use > pinned_pages()) {
    entry.retry_below = in_use;
    return;
  }
  // Its files are being replaced: the content that comes is brought as soon as it is known.
  if (entry.claims > 0 && is_being_read(name)) return;
  ++failures_;
  if (entry.claims > 0) entry.error = std::move(*done.error).within(cat("adapter ", quote(name)));
}

bool Residency::collect() {
  bool changed = false;
  while (std::optional<AdapterStore::Done> done = store_->take_done()) {
    const auto found = jobs_.find(done->id);
    MOTLEY_CHECK(found != jobs_.end(), "the store does what it was told, once");
    Pending pending = std::move(found->second);
    jobs_.erase(found);
    switch (pending.task) {
      case Task::read: {
        Result<void> entered = enter(pending, *std::move(done));
        changed = changed || entered.ok();
        if (pending.answer) pending.answer(std::move(entered));
        break;
      }
      case Task::place:
        take_placed(pending.spec.name, *std::move(done));
        break;
    }
  }
  for (const auto& [name, entry] : entries_) try_again(*entry);
  changed = sweep() || changed;
  refresh_committed();
  return changed;
}

void Residency::try_again(AdapterEntry& entry) {
  if (entry.retry_below && entry.claims > 0 && store_->usage().pinned_pages < *entry.retry_below)
    place(entry);
}

// The bytes stay where they are until somebody needs the room.
bool Residency::sweep() {
  std::vector<Answer> answers;
  for (auto asked = unloading_.begin(); asked != unloading_.end();) {
    const auto found = entries_.find(asked->first);
    const AdapterEntry& entry = *found->second;
    if (entry.named > 0 || entry.claims > 0 || entry.bytes == Bytes::loading) {
      ++asked;
      continue;
    }
    entries_.erase(found);
    answers.push_back(std::move(asked->second));
    asked = unloading_.erase(asked);
  }
  for (Answer& answer : answers) answer({});
  return !answers.empty();
}

void Residency::refresh_committed() {
  const AdapterStore::Usage usage = store_->usage();
  all_pages_ = usage.pages;
  committed_ = usage.pinned_pages;
  pinned_ = pinned_pages();
  for (const auto& [name, entry] : entries_) {
    if (entry->bytes == Bytes::loading || entry->retry_below) committed_ += entry->pages;
  }
}

std::uint64_t Residency::pinned_pages() const {
  std::uint64_t pages = 0;
  for (const auto& [name, entry] : entries_) {
    if (entry->spec.pinned) pages += entry->pages;
  }
  return pages;
}

std::uint64_t Residency::pages_to_bring(std::span<AdapterEntry* const> adapters) const {
  std::uint64_t pages = 0;
  for (const AdapterEntry* const entry : adapters) {
    if (entry->bytes == Bytes::absent && !entry->retry_below) pages += entry->pages;
  }
  return pages;
}

std::optional<Claim> Residency::claim(std::span<AdapterEntry* const> adapters) {
  for (const AdapterEntry* const entry : adapters) {
    if (entry->closing) return std::nullopt;
  }
  const std::uint64_t bring = pages_to_bring(adapters);
  if (bring > 0 && !adapters_fit(bring, committed_ + kept_, all_pages_)) return std::nullopt;
  committed_ += bring;
  Claim claim(this, adapters);
  for (AdapterEntry* const entry : adapters) {
    if (entry->bytes != Bytes::absent || entry->retry_below) continue;
    entry->handle = store_->acquire(entry->spec.name, entry->version);
    if (entry->handle) {
      entry->error.reset();
      entry->bytes = Bytes::ready;
      entry->fresh = true;
    } else {
      place(*entry);
    }
  }
  return claim;
}

bool Residency::can_fit(std::span<AdapterEntry* const> adapters) const {
  std::uint64_t pages = pinned_;
  for (const AdapterEntry* const entry : adapters) {
    if (!entry->spec.pinned) pages += entry->pages;
  }
  return pages <= all_pages_;
}

void Residency::rank_in_use() {
  in_use_.clear();
  closable_ = 0;
  for (const auto& [name, entry] : entries_) {
    if (entry->bytes != Bytes::ready || entry->claims == 0 || entry->spec.pinned) continue;
    if (entry->fresh) continue;
    in_use_.push_back(entry.get());
    closable_ += entry->pages;
  }
  std::ranges::sort(in_use_, {}, [](const AdapterEntry* entry) {
    return std::tuple(!entry->was_closing, entry->begun, entry->claims, entry->turn);
  });
}

std::optional<std::size_t> Residency::how_many_close(
    std::span<AdapterEntry* const> for_these) const {
  const std::uint64_t wanted = kept_ + pages_to_bring(for_these);
  std::uint64_t committed = committed_ - std::min(committed_, closing_);
  // Most that wait can't be helped: that is seen without a look at who is in use.
  if (!adapters_fit(wanted, committed - std::min(committed, closable_), all_pages_)) return {};
  std::size_t count = 0;
  while (!adapters_fit(wanted, committed, all_pages_)) {
    if (count == in_use_.size()) return {};
    AdapterEntry* const entry = in_use_[count++];
    if (!is_among(for_these, entry)) committed -= std::min(committed, entry->pages);
  }
  return count;
}

std::optional<std::int64_t> Residency::price_of_room(
    std::span<AdapterEntry* const> adapters) const {
  // Closing, they come when those are there for whom they close.
  if (std::ranges::any_of(adapters, &AdapterEntry::closing)) return std::nullopt;
  const auto count = how_many_close(adapters);
  if (!count) return std::nullopt;
  std::int64_t most = 1;
  for (AdapterEntry* const entry : std::span(in_use_).first(*count)) {
    if (!is_among(adapters, entry)) most = std::max(most, entry->begun);
  }
  return most;
}

void Residency::make_room(std::span<AdapterEntry* const> adapters) {
  const auto count = how_many_close(adapters);
  kept_ += pages_to_bring(adapters);
  if (!count) return;
  for (AdapterEntry* const entry : std::span(in_use_).first(*count)) {
    if (is_among(adapters, entry)) continue;
    entry->closing = true;
    closing_ += entry->pages;
    closable_ -= entry->pages;
  }
  std::erase_if(in_use_, &AdapterEntry::closing);
}

void Residency::stop_making_room() {
  kept_ = 0;
  closing_ = 0;
  for (const auto& [name, entry] : entries_)
    entry->was_closing = std::exchange(entry->closing, false);
}

std::vector<AdapterInfo> Residency::describe() const {
  std::vector<AdapterInfo> infos;
  infos.reserve(entries_.size());
  for (const auto& [name, entry] : entries_) {
    AdapterState state = AdapterState::stored;
    if (entry->bytes == Bytes::loading) state = AdapterState::loading;
    if (entry->bytes == Bytes::ready) state = AdapterState::ready;
    if (entry->draining) state = AdapterState::draining;
    infos.push_back({.name = name,
                     .path = entry->spec.path.string(),
                     .version = lora::to_string(entry->version),
                     .state = state,
                     .pinned = entry->spec.pinned,
                     .pages = entry->pages,
                     .running = entry->running,
                     .waiting = entry->waiting});
  }
  return infos;
}

Result<void> Residency::check() const {
  for (const auto& [name, entry] : entries_) {
    const auto broken = [&](std::string_view what) {
      return Error(ErrorCode::internal, cat("adapter ", quote(name), " ", what));
    };
    if ((entry->bytes == Bytes::ready) != static_cast<bool>(entry->handle))
      return broken("is ready without a handle, or has one without being ready");
    if ((entry->bytes == Bytes::loading) != (entry->job != 0))
      return broken("is loading without a job, or has one without loading");
    if (entry->bytes == Bytes::ready && entry->claims == 0) return broken("is held for nobody");
    if (entry->handle && entry->handle->version() != entry->version)
      return broken("has bytes of other content");
    if (entry->closing && kept_ == 0) return broken("is closing for nobody");
    if (entry->claims < 0 || entry->named < 0) return broken("counts less than nobody");
    if (entry->begun < 0 || entry->begun > entry->claims)
      return broken("counts other claims that have begun than there are");
  }
  if (store_->usage().pinned_pages > store_->usage().pages)
    return Error(ErrorCode::internal, "more pages of adapters are in use than there are");
  return {};
}

}  // namespace motley::engine
