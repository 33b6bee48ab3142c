#include "engine/residency/claim.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/cat.h"
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
      mix_(std::exchange(other.mix_, {})),
      versions_(std::move(other.versions_)) {}

Claim& Claim::operator=(Claim&& other) noexcept {
  std::swap(residency_, other.residency_);
  std::swap(entries_, other.entries_);
  std::swap(resolved_, other.resolved_);
  std::swap(begun_, other.begun_);
  std::swap(mix_, other.mix_);
  std::swap(versions_, other.versions_);
  return *this;
}

Claim::~Claim() { release(); }

void Claim::release() {
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
  std::string versions;
  for (const AdapterEntry* const entry : entries_)
    versions += cat(versions.empty() ? "" : ",", entry->version_name);
  MOTLEY_TRY(mix_, lora::Mix::make(parts));
  versions_ = std::move(versions);
  resolved_ = true;
  return {};
}

void Claim::unresolve() {
  mix_ = {};
  versions_.clear();
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
  claim.mix_ = mix_;
  claim.versions_ = versions_;
  return claim;
}

}  // namespace motley::engine
