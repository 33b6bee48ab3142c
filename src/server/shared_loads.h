#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/system/clock.h"
#include "engine/engine.h"

namespace motley::server {

// Loads adapters that requests name before they are loaded: once each, however many requests wait
// for one. A request also waits while an explicit load of its adapter is under way. Thread-safe.
class SharedLoads {
 public:
  // How long the error of a load that failed is repeated, without reading the files again.
  static constexpr Duration pause = std::chrono::seconds(1);

  // `loaded` is called once for each load from a folder, before its requests go on; may be empty.
  // The engine must outlive this, and have been shut down before it is destroyed. The clock must
  // outlive it; null: the steady clock.
  SharedLoads(engine::Engine& engine, std::function<void(const std::string&)> loaded,
              const Clock* clock = nullptr)
      : engine_(engine), loaded_(std::move(loaded)), clock_(clock_or_steady(clock)) {}

  // For a request. As Engine::load_adapter, but an adapter that has been loaded meanwhile is no
  // error.
  void load(const engine::AdapterSpec& spec, const engine::Engine::Done& done);
  // For the route that loads adapters. As Engine::load_adapter.
  void load_explicitly(const engine::AdapterSpec& spec, bool replace,
                       const engine::Engine::Done& done);

 private:
  struct Failure {
    TimePoint when;
    Error error;
  };
  // The loads of one name that are under way, and the requests that wait for them.
  struct Load {
    int explicit_loads = 0;
    bool reads = false;                       // for the requests
    std::optional<engine::AdapterSpec> spec;  // of the first request
    std::vector<engine::Engine::Done> requests;
  };

  void begin(const engine::AdapterSpec& spec);
  void end(const std::string& name, Result<void> result);
  void end_explicit(const std::string& name);
  std::optional<Error> recent_failure_locked(const std::string& name);

  engine::Engine& engine_;
  std::function<void(const std::string&)> loaded_;
  const Clock& clock_;
  std::mutex lock_;
  std::map<std::string, Failure> failures_;  // by name
  std::map<std::string, Load> loads_;        // by name
};

}  // namespace motley::server
