#include "engine/residency/claim.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/residency/residency.h"

namespace motley::engine {

Claim::Claim(Residency* residency, std::span<AdapterEntry* const> entries)
    : residency_(residency), entries_(entries.begin(), entries.end()) {
  for (AdapterEntry* const entry : entries_) ++entry->claims;
}

Claim::Claim(Claim&& other) noexcept
    : residency_(other.residency_),
      entries_(std::exchange(other.entries_, {})),
      resolved_(other.resolved_),
      begun_(other.begun_),
      contents_(std::exchange(other.contents_, {})) {}

Claim& Claim::operator=(Claim&& other) noexcept {
  std::swap(residency_, other.residency_);
  std::swap(entries_, other.entries_);
  std::swap(resolved_, other.resolved_);
  std::swap(begun_, other.begun_);
  std::swap(contents_, other.contents_);
  return *this;
}

Claim::~Claim() { release(); }

void Claim::release() {
  contents_ = {};
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
  Contents contents;
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    contents.parts.push_back({.adapter = *entries_[i]->handle(), .scale = adapters[i].scale});
    contents.versions.push_back(entries_[i]->version_name);
  }
  MOTLEY_TRY(contents.mix, lora::Mix::make(contents.parts));
  contents_ = std::move(contents);
  resolved_ = true;
  return {};
}

bool Claim::is_outdated(const AdapterEntry& entry, const lora::Mix::Part& part) {
  const lora::Handle* const ready = entry.handle();
  return entry.spec.switches && ready != nullptr && (*ready)->version() != part.adapter->version();
}

bool Claim::outdated() const {
  if (!resolved_) return false;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (is_outdated(*entries_[i], contents_.parts[i])) return true;
  }
  return false;
}

Result<void> Claim::renew(FunctionRef<Result<void>(const lora::Mix& mix)> takes) {
  Contents contents = contents_;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!is_outdated(*entries_[i], contents.parts[i])) continue;
    contents.parts[i].adapter = *entries_[i]->handle();
    contents.versions[i] = entries_[i]->version_name;
  }
  MOTLEY_TRY(contents.mix, lora::Mix::make(contents.parts));
  MOTLEY_TRY_VOID(takes(contents.mix));
  contents_ = std::move(contents);
  return {};
}

void Claim::unresolve() {
  contents_ = {};
  resolved_ = false;
}

void Claim::begin() {
  if (std::exchange(begun_, true)) return;
  for (AdapterEntry* const entry : entries_) {
    ++entry->begun;
    if (auto* const ready = std::get_if<AdapterEntry::Ready>(&entry->state)) ready->fresh = false;
  }
}

bool Claim::closing() const {
  return std::ranges::any_of(entries_, &AdapterEntry::is<AdapterEntry::Closing>);
}

Claim Claim::again() const {
  Claim claim(residency_, entries_);
  if (begun_) claim.begin();
  claim.resolved_ = resolved_;
  claim.contents_ = contents_;
  return claim;
}

}  // namespace motley::engine
