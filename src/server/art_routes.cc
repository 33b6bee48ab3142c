#include "server/art_routes.h"

#include <atomic>
#include <optional>
#include <utility>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/system/random_id.h"
#include "server/api/api_error.h"
#include "server/api/request_body.h"
#include "server/on_workers.h"

namespace motley::server {

namespace asio = boost::asio;

ArtRoutes::ArtRoutes(const Parts& parts) : parts_(parts), process_(random_id()) {}

// ART refuses members that it does not know, and takes another name of the runtime for a server
// without this protocol.
asio::awaitable<void> ArtRoutes::capabilities(Exchange& exchange) {
  co_await exchange.send(json_response(
      R"({"runtime":"art_vllm","protocol_version":5,"binary_routed_experts":false,)"
      R"("inplace_lora_load":true,"in_flight_lora_updates":true,"policy_token_spans":true})"));
}

asio::awaitable<void> ArtRoutes::state(Exchange& exchange) {
  const json::Object body{{"process_uuid", process_},
                          {"generation", 0},
                          {"in_flight_lora_updates", true},
                          {"policy_token_spans", true}};
  co_await exchange.send(json_response(json::write(body)));
}

asio::awaitable<void> ArtRoutes::update(Exchange& exchange) {
  HttpResponse answer = co_await answer_update(exchange);
  co_await exchange.send(std::move(answer));
}

asio::awaitable<HttpResponse> ArtRoutes::answer_update(Exchange& exchange) {
  std::atomic<bool> gone = false;
  const auto read = [&]() -> Result<PolicyUpdate> {
    MOTLEY_TRY(const json::Value body, parse_body(exchange.request()));
    MOTLEY_TRY(PolicyUpdate update, read_policy_update(body));
    MOTLEY_TRY_VOID(check_adapter_name(exchange.request(), update.slot));
    return update;
  };
  const Result<PolicyUpdate> update = co_await on_workers(*parts_.workers, exchange, gone, read);
  if (!update.ok()) co_return adapter_error(update.error(), exchange.request().id);
  std::optional<PushOperations::Operation> operation;
  if (!update->operation_id.empty()) {
    PushOperations::Operation begun =
        co_await operations_.begin(exchange.executor(), update->slot, update->operation_id);
    operation.emplace(std::move(begun));
  }
  if (operation && operation->answer() != nullptr) co_return *operation->answer();
  const Result<std::string> updated = co_await try_update(exchange, *update);
  HttpResponse answer = updated.ok() ? json_response(*updated)
                                     : adapter_error(updated.error(), exchange.request().id);
  if (operation) operation->end(answer);
  co_return answer;
}

asio::awaitable<Result<std::string>> ArtRoutes::try_update(Exchange& exchange,
                                                           const PolicyUpdate& update) {
  const auto present = parts_.engine->adapter(update.slot);
  if (!present)
    co_return Error(ErrorCode::not_found, cat("no adapter ", quote(update.slot)), "lora_slot",
                    "load it first (POST /v1/load_lora_adapter)");
  Result<void> may = update.may_replace(present->version);
  if (!may.ok()) co_return std::move(may).error();
  LoadAdapterRequest request{.spec = {.name = update.slot, .path = update.path}, .replace = true};
  request.spec.version = update.version();
  request.spec.expected_version = present->version;
  request.spec.switches = true;
  const auto loaded = co_await parts_.loads->load(exchange, std::move(request));
  if (!loaded.ok()) co_return loaded.error();
  const json::Object body{{"status", "updated"},
                          {"model_name", update.model_name},
                          {"lora_slot", update.slot},
                          {"generation_id", update.generation_id},
                          {"policy_version", update.policy_version},
                          {"update_seq", update.policy_version},
                          {"update_identity", cat("lora:", update.slot, ":", update.version())}};
  co_return json::write(body);
}

}  // namespace motley::server
