#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "engine/engine.h"
#include "server/api/push_request.h"
#include "server/async/name_turns.h"
#include "server/fair_workers.h"
#include "server/http/messages/exchange.h"
#include "server/metrics/push_counts.h"
#include "server/push/push_memory.h"
#include "server/push/push_operations.h"
#include "server/shared_loads.h"

namespace motley::server {

// An adapter as the routes of adapters show it.
std::string adapter_body(const engine::AdapterInfo& adapter);

// Takes adapters that clients push: their bytes come once, and are held for all loads. What can be
// checked is checked before a body is read.
class AdapterPushes {
 public:
  // Of the pages for adapters, old versions that requests still use may take this part before
  // pushes have to wait.
  static constexpr std::uint64_t old_versions_part = 2;

  struct Options {
    PushMemory::Options memory = {};
    std::optional<std::filesystem::path> root = {};  // of paths on the server
    std::vector<std::string> base_names = {};        // which no adapter may have
  };
  // They must outlive this.
  struct Collaborators {
    engine::Engine* engine = nullptr;
    SharedLoads* loads = nullptr;
    FairWorkers* workers = nullptr;
    const lora::BaseView* base = nullptr;  // null: headers are checked where adapters are loaded
  };

  AdapterPushes(const Collaborators& collaborators, Options options);

  // The answer to a push of the adapter that the path names.
  boost::asio::awaitable<HttpResponse> push(Exchange& exchange);

  const PushMemory& memory() const { return memory_; }
  std::string metrics() const;

 private:
  using Content = std::shared_ptr<const lora::AdapterContent>;

  boost::asio::awaitable<Result<PushRequest>> read_request(Exchange& exchange);
  boost::asio::awaitable<Result<std::string>> push_new(Exchange& exchange, PushRequest request);
  Result<void> check_name(const HttpHead& head, const std::string& name) const;
  // Whether the adapter may come now, as far as its head tells.
  Result<void> check_before_body(const engine::AdapterSpec& spec) const;
  struct Incoming;
  struct Times;
  boost::asio::awaitable<Result<void>> read_body(Exchange& exchange, Incoming& incoming,
                                                 const lora::LoadOptions& load);
  boost::asio::awaitable<Result<void>> check_beginning(Exchange& exchange, Incoming& incoming,
                                                       const lora::LoadOptions& load);
  boost::asio::awaitable<Result<Content>> receive(Exchange& exchange,
                                                  const engine::AdapterSpec& spec, Times& times);
  boost::asio::awaitable<Result<Content>> copy(Exchange& exchange, engine::AdapterSpec& spec);

  Collaborators with_;
  Options options_;
  PushMemory memory_;
  NameTurns turns_;
  PushOperations operations_;
  PushCounts counts_;
};

}  // namespace motley::server
