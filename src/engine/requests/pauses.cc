#include "engine/requests/pauses.h"

#include "base/cat.h"

namespace motley::engine {

Result<void> Pauses::add(const Pause& pause) {
  if (pause.adapter.empty()) {
    all_ = pause.mode;
    return {};
  }
  if (adapters_.size() >= max_adapters && !adapters_.contains(pause.adapter))
    return Error(ErrorCode::busy, cat(adapters_.size(), " adapters are paused already"), {},
                 "resume some of them");
  adapters_.insert_or_assign(pause.adapter, pause.mode);
  return {};
}

void Pauses::end(std::string_view adapter) {
  if (adapter.empty()) {
    all_.reset();
  } else if (const auto found = adapters_.find(adapter); found != adapters_.end()) {
    adapters_.erase(found);
  }
}

void Pauses::end_all() {
  all_.reset();
  adapters_.clear();
}

std::vector<std::string> Pauses::adapters() const {
  std::vector<std::string> names;
  for (const auto& [name, mode] : adapters_) names.push_back(name);
  return names;
}

std::optional<PauseMode> Pauses::of(const Request& request) const {
  if (all_) return all_;
  std::optional<PauseMode> mode;
  for (const lora::ScaledAdapter& each : request.adapters) {
    const auto found = adapters_.find(each.name);
    if (found == adapters_.end()) continue;
    if (found->second != PauseMode::keep) return found->second;
    mode = PauseMode::keep;
  }
  return mode;
}

Result<void> Pauses::check(const Request& request) const {
  if (!all_ && adapters_.empty()) return {};
  // A pause of all that keeps requests lets an adapter's pause refuse them.
  const auto refuses = [&](const lora::ScaledAdapter& each) {
    const auto found = adapters_.find(each.name);
    return found != adapters_.end() && found->second != PauseMode::keep;
  };
  if (all_ && *all_ != PauseMode::keep)
    return Error(ErrorCode::unavailable, "the server is paused", {}, "ask again after /resume");
  for (const lora::ScaledAdapter& each : request.adapters)
    if (refuses(each))
      return Error(ErrorCode::unavailable, cat("adapter ", quote(each.name), " is paused"), {},
                   "ask again after /resume of it");
  return {};
}

}  // namespace motley::engine
