#pragma once

#include <utility>

#include "server/backend.h"

namespace motley::server {

// The engine as the server sees it.
class EngineBackend final : public Backend {
 public:
  // The engine must outlive this.
  explicit EngineBackend(engine::Engine& engine) : engine_(engine) {}

  Result<engine::RequestId> submit(engine::Request request,
                                   std::shared_ptr<engine::RequestSink> sink) override {
    return engine_.submit(std::move(request), std::move(sink));
  }
  void cancel(engine::RequestId request) override { engine_.cancel(request); }
  void cancel(engine::RequestId request, int choice) override { engine_.cancel(request, choice); }
  void load_adapter(engine::AdapterSpec spec, bool replace, Done done) override {
    engine_.load_adapter(std::move(spec), replace, std::move(done));
  }
  void unload_adapter(std::string name, Done done) override {
    engine_.unload_adapter(std::move(name), std::move(done));
  }
  std::vector<engine::AdapterInfo> adapters() const override { return engine_.adapters(); }
  engine::Stats stats() const override { return engine_.stats(); }
  std::int64_t max_sequence_tokens() const override { return engine_.max_sequence_tokens(); }
  Result<void> health() const override { return engine_.health(); }

 private:
  engine::Engine& engine_;
};

}  // namespace motley::server
