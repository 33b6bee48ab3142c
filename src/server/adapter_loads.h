#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "engine/engine.h"
#include "server/api/adapter_request.h"
#include "server/fair_workers.h"
#include "server/http/messages/exchange.h"
#include "server/shared_loads.h"

namespace motley::server {

// Loads and unloads adapters by path, for all routes that do so: reads the body, checks the name
// and the path, and waits for the engine.
class AdapterLoads {
 public:
  struct Options {
    std::vector<std::string> base_names = {};  // which no adapter may take
    std::optional<std::filesystem::path> root = {};
  };
  // They must outlive it.
  AdapterLoads(engine::Engine& engine, SharedLoads& loads, FairWorkers& workers, Options options)
      : engine_(engine), loads_(loads), workers_(workers), options_(std::move(options)) {}

  enum class Taken : std::uint8_t {
    as_asked,  // a name that is taken is an error without `load_inplace`
    replaced,  // it is replaced in any case
  };
  // The adapter's name. A folder that is not there yet, or not whole, is `not_found`.
  boost::asio::awaitable<Result<std::string>> load(Exchange& exchange, Taken taken);
  // The same of a body that the caller has read.
  boost::asio::awaitable<Result<std::string>> load(Exchange& exchange, LoadAdapterRequest request);
  boost::asio::awaitable<Result<std::string>> unload(Exchange& exchange);
  // Waits for the requests that use it, unless they stand still.
  boost::asio::awaitable<Result<void>> unload_named(Exchange& exchange, std::string name);

 private:
  struct Wanted;
  Result<Wanted> find(const HttpRequest& request, LoadAdapterRequest asked) const;
  Error refused(const Wanted& wanted, const Error& error) const;

  engine::Engine& engine_;
  SharedLoads& loads_;
  FairWorkers& workers_;
  Options options_;
};

// Of an adapter that is to be loaded, unloaded or paused.
Result<void> check_adapter_name(const HttpHead& head, std::string_view name);

}  // namespace motley::server
