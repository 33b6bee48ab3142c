// The routes of pushed adapters: PUT, GET and DELETE /v1/adapters/NAME, and their list.

#include <array>
#include <utility>

#include "base/cat.h"
#include "base/json/json.h"
#include "engine/adapter_log.h"
#include "server/api/adapter_state.h"
#include "server/api/api_error.h"
#include "server/service.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;

Error no_adapter(std::string_view name) {
  return {ErrorCode::not_found, cat("no adapter ", quote(name)), "name",
          "GET /v1/adapters lists those that are there"};
}

json::Object adapter_object(const engine::AdapterInfo& adapter, std::string_view state) {
  return {{"name", adapter.name},
          {"version", adapter.version},
          {"bytes", static_cast<std::int64_t>(adapter.bytes)},
          {"state", state},
          {"checksum", adapter.checksum.empty() ? json::Value() : json::Value(adapter.checksum)}};
}

}  // namespace

std::string adapter_body(const engine::AdapterInfo& adapter) {
  return json::write(adapter_object(adapter, state_of(adapter)));
}

asio::awaitable<void> Service::put_adapter(Exchange& exchange) {
  HttpResponse answer = co_await pushes_.push(exchange);
  co_await exchange.send(std::move(answer));
}

asio::awaitable<void> Service::get_adapter(Exchange& exchange) {
  const std::string& name = exchange.request().parameter;
  auto adapter = engine_.adapter(name);
  if (adapter && !exchange.request().may_use(name)) adapter.reset();
  if (adapter)
    co_await exchange.send(json_response(adapter_body(*adapter)));
  else
    co_await exchange.send(adapter_error(no_adapter(name), {}));
}

asio::awaitable<void> Service::list_adapters(Exchange& exchange) {
  json::Array list;
  for (const engine::AdapterInfo& each : adapters_for(exchange.request()))
    list.emplace_back(adapter_object(each, state_of(each)));
  const PushMemory::Figures held = pushes_.memory().figures();
  json::Object memory{{"bytes", static_cast<std::int64_t>(held.used_bytes)},
                      {"limit_bytes", static_cast<std::int64_t>(held.limit_bytes)}};
  const json::Object body{
      {"object", "list"}, {"data", std::move(list)}, {"push_memory", std::move(memory)}};
  co_await exchange.send(json_response(json::write(body)));
}

asio::awaitable<void> Service::delete_adapter(Exchange& exchange) {
  const std::string& name = exchange.request().parameter;
  auto adapter = engine_.adapter(name);
  if (adapter && !exchange.request().may_use(name)) adapter.reset();
  if (!adapter) {
    co_await exchange.send(adapter_error(no_adapter(name), {}));
    co_return;
  }
  const Result<void> unloaded = co_await loads_.unload_named(exchange, name);
  adapter->bytes = 0;
  if (unloaded.ok())
    co_await exchange.send(json_response(json::write(adapter_object(*adapter, "absent"))));
  else
    co_await exchange.send(adapter_error(at_field(unloaded.error(), "name"), {}));
}

}  // namespace motley::server
