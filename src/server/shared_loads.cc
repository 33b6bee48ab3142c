#include "server/shared_loads.h"

#include <tuple>

#include "base/system/out_of_memory.h"
#include "engine/adapter_log.h"

namespace motley::server {

void SharedLoads::load(const engine::AdapterSpec& spec, const engine::Engine::Done& done) {
  bool first = false;
  std::optional<Error> failed;
  const Result<void> listed = within_memory([&] {
    const std::lock_guard held(lock_);
    failed = recent_failure_locked(spec.name);
    if (failed) return;
    const auto [waiting, fresh] = waiting_.try_emplace(spec.name);
    waiting->second.push_back(done);
    first = fresh;
  });
  if (!listed.ok()) {
    // An entry without a request that waits would keep the name for good.
    {
      const std::lock_guard held(lock_);
      const auto empty = waiting_.find(spec.name);
      if (empty != waiting_.end() && empty->second.empty()) waiting_.erase(empty);
    }
    return done(listed);
  }
  if (failed) return done(*std::move(failed));
  if (!first) return;
  if (Result<void> begun = within_memory([&] { begin(spec); }); !begun.ok())
    end(spec.name, std::move(begun));
}

void SharedLoads::begin(const engine::AdapterSpec& spec) {
  engine::load_and_log(engine_, spec, false, [this, name = spec.name](Result<void> result) {
    const bool there = !result.ok() && engine_.adapter(name).has_value();
    if (result.ok() && loaded_) std::ignore = within_memory([&] { loaded_(name); });
    end(name, there ? Result<void>() : std::move(result));
  });
}

// Those that are over are forgotten.
std::optional<Error> SharedLoads::recent_failure_locked(const std::string& name) {
  const TimePoint now = clock_.now();
  std::erase_if(failures_, [&](const auto& each) { return now - each.second.when >= pause; });
  const auto found = failures_.find(name);
  return found == failures_.end() ? std::nullopt : std::optional(found->second.error);
}

void SharedLoads::end(const std::string& name, Result<void> result) {
  decltype(waiting_)::node_type ended;
  {
    const std::lock_guard held(lock_);
    ended = waiting_.extract(name);
    const bool of_files = !result.ok() && result.error().code() != ErrorCode::busy &&
                          result.error().code() != ErrorCode::out_of_memory;
    if (of_files)
      std::ignore = within_memory([&] {
        failures_.insert_or_assign(name, Failure{.when = clock_.now(), .error = result.error()});
      });
  }
  if (ended.empty()) return;
  for (const engine::Engine::Done& done : ended.mapped()) done(result);
}

}  // namespace motley::server
