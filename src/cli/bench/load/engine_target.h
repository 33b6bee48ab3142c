#pragma once

#include <string>
#include <vector>

#include "cli/bench/load/run.h"
#include "engine/engine.h"

namespace motley::cli {

// Sends a load's requests directly to an engine in this process.
class EngineTarget final : public LoadTarget {
 public:
  // The engine must outlive it, and have the adapters.
  EngineTarget(engine::Engine& engine, std::vector<std::string> adapters, std::int64_t vocabulary)
      : engine_(&engine), adapters_(std::move(adapters)), vocabulary_(vocabulary) {}

  std::size_t adapters() const override { return adapters_.size(); }
  std::int64_t vocabulary() const override { return vocabulary_; }
  void send(PlannedRequest request, FlightObserver& observer) override;

 private:
  engine::Engine* engine_;
  std::vector<std::string> adapters_;
  std::int64_t vocabulary_;
};

}  // namespace motley::cli
