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
    const auto under_way = loads_.find(spec.name);
    if (under_way == loads_.end()) failed = recent_failure_locked(spec.name);
    if (failed) return;
    Load fresh{.reads = true, .spec = spec, .requests = {done}};
    if (under_way == loads_.end()) {
      first = loads_.try_emplace(spec.name, std::move(fresh)).second;
      return;
    }
    Load& load = under_way->second;
    load.requests.push_back(done);
    if (!load.spec) load.spec = std::move(fresh.spec);
  });
  if (!listed.ok()) return done(listed);
  if (failed) return done(*std::move(failed));
  if (!first) return;
  if (Result<void> begun = within_memory([&] { begin(spec); }); !begun.ok())
    end(spec.name, std::move(begun));
}

void SharedLoads::load_explicitly(const engine::AdapterSpec& spec, bool replace,
                                  const engine::Engine::Done& done) {
  Result<void> begun = within_memory([&] {
    const std::lock_guard held(lock_);
    ++loads_[spec.name].explicit_loads;
  });
  if (!begun.ok()) return done(std::move(begun));
  begun = within_memory([&] {
    engine::load_and_log(
        engine_, spec, replace,
        [this, name = spec.name, pushed = spec.content != nullptr, done](Result<void> result) {
          if (result.ok() && loaded_ && !pushed)
            std::ignore = within_memory([&] { loaded_(name); });
          end_explicit(name);
          done(std::move(result));
        });
  });
  if (begun.ok()) return;
  end_explicit(spec.name);
  done(std::move(begun));
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

// Every request is answered, even without memory to remember the failure.
void SharedLoads::end(const std::string& name, Result<void> result) {
  std::vector<engine::Engine::Done> requests;
  {
    const std::lock_guard held(lock_);
    const auto ended = loads_.find(name);
    requests.swap(ended->second.requests);
    ended->second.spec.reset();
    ended->second.reads = false;
    if (ended->second.explicit_loads == 0) loads_.erase(ended);
    const bool of_files = !result.ok() && result.error().code() != ErrorCode::busy &&
                          result.error().code() != ErrorCode::out_of_memory;
    if (of_files)
      std::ignore = within_memory([&] {
        failures_.insert_or_assign(name, Failure{.when = clock_.now(), .error = result.error()});
      });
  }
  for (const engine::Engine::Done& done : requests) done(result);
}

// If no explicit load has succeeded, the requests load the adapter that they have found.
void SharedLoads::end_explicit(const std::string& name) {
  const bool there = engine_.adapter(name).has_value();
  std::optional<engine::AdapterSpec> spec;
  {
    const std::lock_guard held(lock_);
    const auto ended = loads_.find(name);
    Load& load = ended->second;
    if (--load.explicit_loads > 0 || load.reads) return;
    if (load.requests.empty()) {
      loads_.erase(ended);
      return;
    }
    load.reads = true;
    spec.swap(load.spec);
  }
  if (there) return end(name, {});
  if (Result<void> begun = within_memory([&] { begin(*spec); }); !begun.ok())
    end(name, std::move(begun));
}

}  // namespace motley::server
