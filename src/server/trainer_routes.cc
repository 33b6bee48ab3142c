#include "server/trainer_routes.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "base/json/json.h"
#include "server/api/api_error.h"
#include "server/async/outcome_of.h"
#include "server/on_workers.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;

Result<engine::PauseMode> mode_of(const Parameters& parameters) {
  MOTLEY_TRY(const auto mode, parameters.text("mode"));
  // The field that vLLM had before the modes.
  MOTLEY_TRY(const auto waits, parameters.flag("wait_for_inflight_requests"));
  if (!mode) return waits.value_or(false) ? engine::PauseMode::wait : engine::PauseMode::abort;
  if (*mode == "abort") return engine::PauseMode::abort;
  if (*mode == "wait") return engine::PauseMode::wait;
  if (*mode == "keep") return engine::PauseMode::keep;
  return Error(ErrorCode::invalid_argument, cat("unknown mode ", quote(*mode)), "mode",
               "use abort, wait or keep");
}

// Of what concerns the requests of all, for a key that may use some adapters alone.
Result<void> check_all(const HttpHead& head, std::string_view fix) {
  if (!head.holder || !head.holder->adapters) return {};
  return Error(ErrorCode::forbidden,
               "this key is for some adapters, and this concerns all requests", {},
               std::string(fix));
}

// The adapter that is named, or none; and whether the key may change that much.
Result<std::string> adapter_of(const HttpHead& head, const Parameters& parameters) {
  MOTLEY_TRY(const auto name, parameters.text("lora_name"));
  if (!name || name->empty()) {
    MOTLEY_TRY_VOID(check_all(head, "name one of its adapters (lora_name)"));
    return std::string();
  }
  MOTLEY_TRY_VOID(check_adapter_name(head, *name));
  return *name;
}

HttpResponse outcome(const Result<void>& result, std::string_view body) {
  return result.ok() ? json_response(std::string(body)) : error_response(result.error());
}

// The last part of its path, as /v1/models shows it.
std::string root_of(const engine::AdapterInfo& adapter) {
  const std::filesystem::path whole = std::filesystem::path(adapter.path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

}  // namespace

asio::awaitable<void> TrainerRoutes::answer_loads(Exchange& exchange, Result<std::string> name) {
  if (!name.ok()) {
    co_await exchange.send(in_place_error(name.error(), exchange.request().id));
    co_return;
  }
  json::Object loaded;
  for (const engine::AdapterInfo& each : parts_.engine->adapters())
    if (exchange.request().may_use(each.name)) loaded.add(each.name, root_of(each));
  json::Object body{{"status", "ok"},
                    {"success", true},
                    {"error_message", ""},
                    {"lora_name", *name},
                    {"loaded_adapters", std::move(loaded)}};
  co_await exchange.send(json_response(json::write(body)));
}

asio::awaitable<void> TrainerRoutes::load(Exchange& exchange) {
  auto name = co_await parts_.loads->load(exchange, AdapterLoads::Taken::replaced);
  co_await answer_loads(exchange, std::move(name));
}

asio::awaitable<void> TrainerRoutes::unload(Exchange& exchange) {
  auto name = co_await parts_.loads->unload(exchange);
  co_await answer_loads(exchange, std::move(name));
}

asio::awaitable<Result<Parameters>> TrainerRoutes::parameters(Exchange& exchange) {
  std::atomic<bool> gone = false;
  const auto read = [&] { return Parameters::read(exchange.request()); };
  co_return co_await on_workers(*parts_.workers, exchange, gone, read);
}

asio::awaitable<Result<void>> TrainerRoutes::try_pause(Exchange& exchange) {
  const auto given = co_await parameters(exchange);
  if (!given.ok()) co_return given.error();
  const auto mode = mode_of(*given);
  if (!mode.ok()) co_return mode.error();
  const auto clears = given->flag("clear_cache");
  if (!clears.ok()) co_return clears.error();
  const auto adapter = adapter_of(exchange.request(), *given);
  if (!adapter.ok()) co_return adapter.error();
  const engine::Pause pause{
      .mode = *mode, .adapter = *adapter, .clears_cache = clears->value_or(true)};
  co_return co_await outcome_of(exchange.executor(), [&](engine::Engine::Done done) {
    parts_.engine->pause(pause, std::move(done));
  });
}

asio::awaitable<void> TrainerRoutes::pause(Exchange& exchange) {
  const Result<void> paused = co_await try_pause(exchange);
  co_await exchange.send(outcome(paused, R"({"status":"paused"})"));
}

asio::awaitable<Result<void>> TrainerRoutes::try_resume(Exchange& exchange) {
  const auto given = co_await parameters(exchange);
  if (!given.ok()) co_return given.error();
  const auto adapter = adapter_of(exchange.request(), *given);
  if (!adapter.ok()) co_return adapter.error();
  co_return co_await outcome_of(exchange.executor(), [&](engine::Engine::Done done) {
    parts_.engine->resume(*adapter, std::move(done));
  });
}

asio::awaitable<void> TrainerRoutes::resume(Exchange& exchange) {
  const Result<void> resumed = co_await try_resume(exchange);
  co_await exchange.send(outcome(resumed, R"({"status":"resumed"})"));
}

asio::awaitable<void> TrainerRoutes::is_paused(Exchange& exchange) {
  const engine::Pauses paused = parts_.engine->paused();
  const auto asked = exchange.request().query.value("lora_name");
  if (!asked.ok()) {
    co_await exchange.send(error_response(asked.error()));
    co_return;
  }
  json::Array adapters;
  bool is_named = false;
  for (const std::string& name : paused.adapters()) {
    if (!exchange.request().may_use(name)) continue;
    is_named = is_named || name == asked->value_or("");
    adapters.emplace_back(name);
  }
  json::Object body{{"is_paused", paused.all() || is_named},
                    {"paused_adapters", std::move(adapters)}};
  co_await exchange.send(json_response(json::write(body)));
}

asio::awaitable<Result<std::size_t>> TrainerRoutes::try_abort(Exchange& exchange) {
  const auto given = co_await parameters(exchange);
  if (!given.ok()) co_return given.error();
  const auto ids = given->texts("request_ids");
  if (!ids.ok()) co_return ids.error();
  const HttpRequest& request = exchange.request();
  std::optional<std::string> client;
  if (!request.may_change_server || !check_all(request, {}).ok()) client = request.client();
  co_return parts_.requests->abort(*ids, client);
}

asio::awaitable<void> TrainerRoutes::abort_requests(Exchange& exchange) {
  const auto aborted = co_await try_abort(exchange);
  if (aborted.ok())
    co_await exchange.send(json_response(cat(R"({"status":"aborted","aborted":)", *aborted, "}")));
  else
    co_await exchange.send(error_response(aborted.error()));
}

asio::awaitable<Result<void>> TrainerRoutes::try_reset(Exchange& exchange) {
  const auto given = co_await parameters(exchange);
  if (!given.ok()) co_return given.error();
  const auto preempts = given->flag("reset_running_requests");
  if (!preempts.ok()) co_return preempts.error();
  const auto allowed = check_all(exchange.request(), "use a key without a list of adapters");
  if (!allowed.ok()) co_return allowed.error();
  co_return co_await outcome_of(exchange.executor(), [&](engine::Engine::Done done) {
    parts_.engine->reset_prefix_cache(preempts->value_or(false), std::move(done));
  });
}

asio::awaitable<void> TrainerRoutes::reset_prefix_cache(Exchange& exchange) {
  const Result<void> reset = co_await try_reset(exchange);
  co_await exchange.send(outcome(reset, R"({"success":true})"));
}

asio::awaitable<void> TrainerRoutes::reset_nothing(Exchange& exchange) {
  co_await exchange.send(json_response(R"({"success":true})"));
}

asio::awaitable<void> TrainerRoutes::server_info(Exchange& exchange) {
  co_await exchange.send(json_response(options_.info.json(options_.takes_adapters)));
}

asio::awaitable<void> TrainerRoutes::world_size(Exchange& exchange) {
  const auto asked = exchange.request().query.value("include_dp");
  if (!asked.ok()) {
    co_await exchange.send(error_response(asked.error()));
    co_return;
  }
  const bool one = asked->value_or("true") == "false" || asked->value_or("") == "0";
  const int size = options_.info.ranks * (one ? 1 : options_.info.replicas);
  co_await exchange.send(json_response(cat(R"({"world_size":)", size, "}")));
}

asio::awaitable<void> TrainerRoutes::sleep(Exchange& exchange) {
  co_await exchange.send(json_response(R"({"status":"ok"})"));
}

asio::awaitable<void> TrainerRoutes::is_sleeping(Exchange& exchange) {
  co_await exchange.send(json_response(R"({"is_sleeping":false})"));
}

asio::awaitable<void> TrainerRoutes::refuse_weights(Exchange& exchange) {
  co_await exchange.send(error_response(
      {ErrorCode::unsupported,
       "the base's weights stay as they are",
       {},
       "train an adapter and push it (PUT /v1/adapters/NAME), or load it by its path "
       "(POST /v1/load_lora_adapter)"}));
}

}  // namespace motley::server
