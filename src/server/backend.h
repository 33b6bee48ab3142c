#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace motley::server {

// What the server needs of an engine. From any thread; see engine::Engine for what each promises.
class Backend {
 public:
  using Done = std::function<void(Result<void>)>;

  virtual ~Backend() = default;

  virtual Result<engine::RequestId> submit(engine::Request request,
                                           std::shared_ptr<engine::RequestSink> sink) = 0;
  virtual void cancel(engine::RequestId request) = 0;
  virtual void cancel(engine::RequestId request, int choice) = 0;

  virtual void load_adapter(engine::AdapterSpec spec, bool replace, Done done) = 0;
  virtual void unload_adapter(std::string name, Done done) = 0;
  virtual std::vector<engine::AdapterInfo> adapters() const = 0;

  virtual engine::Stats stats() const = 0;
  virtual std::int64_t max_sequence_tokens() const = 0;
  virtual Result<void> health() const = 0;
};

}  // namespace motley::server
