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
// for one. Thread-safe.
class SharedLoads {
 public:
  // How long the error of a load that failed is repeated, without reading the files again.
  static constexpr Duration pause = std::chrono::seconds(1);

  // `loaded` is called once for each load, before its requests go on; may be empty. The engine must
  // outlive this, and have been shut down before it is destroyed.
  SharedLoads(engine::Engine& engine, std::function<void(const std::string&)> loaded)
      : engine_(engine), loaded_(std::move(loaded)) {}

  // As Engine::load_adapter, but an adapter that has been loaded meanwhile is no error.
  void load(const engine::AdapterSpec& spec, const engine::Engine::Done& done);

 private:
  struct Failure {
    TimePoint when;
    Error error;
  };

  void begin(const engine::AdapterSpec& spec);
  void end(const std::string& name, Result<void> result);
  std::optional<Error> recent_failure_locked(const std::string& name);

  engine::Engine& engine_;
  std::function<void(const std::string&)> loaded_;
  SteadyClock clock_;
  std::mutex lock_;
  std::map<std::string, Failure> failures_;                           // by name
  std::map<std::string, std::vector<engine::Engine::Done>> waiting_;  // by name
};

}  // namespace motley::server
