#include "server/service.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <utility>

#include <boost/asio/async_result.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/cat.h"
#include "server/api/adapter_request.h"
#include "server/api/api_error.h"
#include "server/generation.h"
#include "server/playground.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;

constexpr std::string_view model_prefix = "/v1/models/";
// Bounds what a body turns into; a list of a million tokens is a prompt that we can serve.
constexpr json::ParseLimits body_limits = {.depth = 64, .values = 2'000'000};

Result<json::Value> parse_body(const HttpRequest& request) {
  if (!request.content_encoding.empty() && request.content_encoding != "identity")
    return Error(ErrorCode::invalid_argument, "a body that is compressed", "",
                 "send it without Content-Encoding");
  auto body = json::parse(request.body, "body", body_limits);
  // The whole body is at fault, which no field is.
  if (!body.ok())
    return Error(ErrorCode::invalid_argument, body.error().message(), "", "send one JSON object");
  if (body->if_object() == nullptr)
    return Error(ErrorCode::invalid_argument, "the body is no JSON object", "", "send one");
  return body;
}

// Work that takes a while, on the workers; the connection's executor is free meanwhile.
template <class Work>
auto on_workers(asio::thread_pool& workers, Work work)
    -> asio::awaitable<std::invoke_result_t<Work>> {
  std::optional<std::invoke_result_t<Work>> result;
  co_await asio::co_spawn(
      workers.get_executor(),
      [&]() -> asio::awaitable<void> {
        result = work();
        co_return;
      },
      asio::use_awaitable);
  co_return *std::move(result);
}

// Starts something that reports once, from any thread, and waits for that on this executor.
template <class Start>
asio::awaitable<Result<void>> outcome_of(asio::any_io_executor executor, Start start) {
  co_return co_await asio::async_initiate<const asio::use_awaitable_t<>, void(Result<void>)>(
      [&](auto handler) {
        auto waiting = std::make_shared<decltype(handler)>(std::move(handler));
        start([waiting, executor](Result<void> result) {
          asio::post(executor, [waiting, result = std::move(result)]() mutable {
            (*waiting)(std::move(result));
          });
        });
      },
      asio::use_awaitable);
}

std::string unescaped(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape =
        text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0;
    result += escape ? static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2])) : text[i];
    if (escape) i += 2;
  }
  return result;
}

double seconds_of_the_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// What is wrong with an adapter is wrong with the field that names it or its folder.
Error at_field(const Error& error, std::string_view field) {
  if (error.where() == field) return error;
  const std::string_view colon = error.where().empty() ? "" : ": ";
  return {error.code(), cat(error.where(), colon, error.what()), std::string(field), error.fix()};
}

// Whether the name is taken, rather than something wrong with what lies at the path.
bool is_about_name(ErrorCode code) {
  return code == ErrorCode::invalid_argument || code == ErrorCode::busy;
}

Error unknown_model(std::string_view id) {
  return {ErrorCode::not_found, cat("no model ", quote(id)), "model",
          "GET /v1/models lists those there are"};
}

}  // namespace

struct Service::Route {
  std::string_view method;
  std::string_view path;
  Answer (Service::*answer)(Exchange&);
  bool guarded = true;        // by the keys
  bool any_origin = true;     // pages of other sites may ask
  bool while_ending = false;  // answered until the very end
};

std::span<const Service::Route> Service::routes() {
  static constexpr std::array all = {
      Route{"GET", "/", &Service::playground, false, true, true},
      Route{"GET", "/health", &Service::health, false, true, true},
      Route{"GET", "/metrics", &Service::metrics, false, true, true},
      Route{"GET", "/v1/models", &Service::list_models},
      Route{"GET", model_prefix, &Service::one_model},
      Route{"POST", "/v1/completions", &Service::completions},
      Route{"POST", "/v1/chat/completions", &Service::chat_completions},
      Route{"POST", "/v1/load_lora_adapter", &Service::load_adapter, true, false},
      Route{"POST", "/v1/unload_lora_adapter", &Service::unload_adapter, true, false},
  };
  return all;
}

Service::Service(const text::ModelText& text, Backend& backend, Options options)
    : text_(text),
      backend_(backend),
      options_(std::move(options)),
      planner_(text_, options_.planner),
      started_(std::time(nullptr)),
      workers_(static_cast<std::size_t>(options_.workers)) {}

HttpResponse Service::refuse(const Error& error) {
  HttpResponse response = error_response(error);
  counts_.count("(refused)", response.status);
  return response;
}

asio::awaitable<void> Service::answer(Exchange& exchange) {
  std::string_view name = "(none)";
  co_await dispatch(exchange, name);
  // A client that went away before it was answered, as logs of servers have it.
  counts_.count(name, exchange.status() == 0 ? 499 : exchange.status());
}

asio::awaitable<void> Service::dispatch(Exchange& exchange, std::string_view& route_name) {
  const HttpRequest& request = exchange.request();
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  const Route* at_path = nullptr;
  for (const Route& route : routes()) {
    const bool fits = route.path == model_prefix ? request.path.starts_with(model_prefix)
                                                 : request.path == route.path;
    if (fits) at_path = &route;
  }
  if (at_path == nullptr) {
    co_await exchange.send(error_response(
        {ErrorCode::not_found, cat("no route ", quote(request.path)), "", "see /v1/models and /"}));
    co_return;
  }
  const Route& route = *at_path;
  route_name = route.path;
  if (route.any_origin) exchange.add_header("Access-Control-Allow-Origin", "*");
  if (method == "OPTIONS" && route.any_origin) {
    exchange.add_header("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    exchange.add_header("Access-Control-Allow-Headers", "*, Authorization");
    exchange.add_header("Access-Control-Max-Age", "600");
    HttpResponse nothing{.status = 204, .content_type = ""};
    co_await exchange.send(std::move(nothing));
  } else if (method != route.method) {
    const std::string_view allowed = route.method == "GET" ? "GET, HEAD" : route.method;
    exchange.add_header("Allow", std::string(allowed));
    HttpResponse response = error_response({ErrorCode::invalid_argument,
                                            cat(quote(request.method), " is not for this route"),
                                            "", cat("use ", allowed)});
    response.status = 405;
    co_await exchange.send(std::move(response));
  } else if (const auto refused = refusal(route, request)) {
    co_await exchange.send(error_response(*refused));
  } else {
    co_await (this->*route.answer)(exchange);
  }
}

std::optional<Error> Service::refusal(const Route& route, const HttpRequest& request) const {
  if (route.guarded && !options_.keys.allow(request.authorization))
    return Error(ErrorCode::unauthorized, "no key, or a wrong one", "",
                 "send Authorization: Bearer KEY");
  if (shutting_down_ && !route.while_ending)
    return Error(ErrorCode::unavailable, "the server is shutting down", "", "ask another");
  return std::nullopt;
}

asio::awaitable<void> Service::playground(Exchange& exchange) {
  exchange.add_header("Content-Security-Policy",
                      "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                      "connect-src 'self'; base-uri 'none'; frame-ancestors 'none'");
  exchange.add_header("Cache-Control", "no-cache");
  co_await exchange.send(text_response("html", std::string(playground_page())));
}

asio::awaitable<void> Service::health(Exchange& exchange) {
  Result<void> health = backend_.health();
  if (shutting_down_)
    health = Error(ErrorCode::unavailable, "the server is shutting down", "", "ask another");
  if (health.ok()) {
    co_await exchange.send(json_response("{\"status\":\"ready\"}"));
  } else {
    co_await exchange.send(error_response(std::move(health).error().as(ErrorCode::unavailable)));
  }
}

asio::awaitable<void> Service::metrics(Exchange& exchange) {
  std::string page = metrics_page(backend_.stats(), counts_, seconds_of_the_epoch());
  co_await exchange.send(text_response("plain; version=0.0.4", std::move(page)));
}

json::Object Service::model_object(std::string_view id, const engine::AdapterInfo* adapter) const {
  const std::string& base = options_.planner.base;
  json::Object object;
  object.add("id", id);
  object.add("object", "model");
  object.add("created", started_);
  object.add("owned_by", "motley");
  object.add("root", adapter == nullptr ? base : adapter->path);
  object.add("parent", adapter == nullptr ? json::Value() : json::Value(base));
  if (adapter == nullptr) object.add("max_model_len", options_.planner.max_sequence_tokens);
  return object;
}

asio::awaitable<void> Service::list_models(Exchange& exchange) {
  json::Array list{model_object(options_.planner.base, nullptr)};
  for (const engine::AdapterInfo& each : backend_.adapters())
    list.emplace_back(model_object(each.name, &each));
  json::Object body;
  body.add("object", "list");
  body.add("data", std::move(list));
  co_await exchange.send(json_response(json::write(body)));
}

asio::awaitable<void> Service::one_model(Exchange& exchange) {
  const std::string id = unescaped(exchange.request().path.substr(model_prefix.size()));
  const std::string& base = options_.planner.base;
  const auto adapters = backend_.adapters();
  const auto adapter =
      std::ranges::find(adapters, adapter_part(id, base), &engine::AdapterInfo::name);
  if (id == base)
    co_await exchange.send(json_response(json::write(model_object(id, nullptr))));
  else if (adapter != adapters.end())
    co_await exchange.send(json_response(json::write(model_object(adapter->name, &*adapter))));
  else
    co_await exchange.send(error_response(unknown_model(id)));
}

asio::awaitable<void> Service::completions(Exchange& exchange) {
  return generate(exchange, &GenerationPlanner::completion);
}

asio::awaitable<void> Service::chat_completions(Exchange& exchange) {
  return generate(exchange, &GenerationPlanner::chat);
}

asio::awaitable<void> Service::generate(Exchange& exchange, Planning planning) {
  const HttpRequest& request = exchange.request();
  auto plan = co_await on_workers(workers_, [&]() -> Result<GenerationPlan> {
    MOTLEY_TRY(const json::Value body, parse_body(request));
    return (planner_.*planning)(body);
  });
  if (!plan.ok()) {
    co_await exchange.send(error_response(plan.error()));
    co_return;
  }
  if (!exchange.gone()) co_await run_generation(exchange, backend_, *std::move(plan));
}

std::optional<Error> Service::adapter_refusal(const HttpRequest& request) const {
  if (!options_.adapter_loading)
    return Error(ErrorCode::forbidden, "adapters can't be loaded or unloaded here", "",
                 "start the server with --allow-adapter-loading");
  // Somebody's page in a browser beside us must not reach what no key guards.
  if (!request.origin.empty())
    return Error(ErrorCode::forbidden, "a web page can't load or unload adapters", "",
                 "send the request without Origin, from a program");
  return std::nullopt;
}

asio::awaitable<void> Service::load_adapter(Exchange& exchange) {
  if (const auto refused = adapter_refusal(exchange.request())) {
    co_await exchange.send(error_response(*refused));
    co_return;
  }
  const auto read = [&]() -> Result<LoadAdapterRequest> {
    MOTLEY_TRY(const json::Value body, parse_body(exchange.request()));
    MOTLEY_TRY(LoadAdapterRequest wanted, read_load_adapter_request(body));
    if (wanted.spec.name == options_.planner.base)
      return Error(ErrorCode::invalid_argument, "the base model has that name", "lora_name",
                   "choose another");
    MOTLEY_TRY(wanted.spec.path, resolve_adapter_path(wanted.spec.path, options_.adapter_root));
    return wanted;
  };
  const auto wanted = read();
  if (!wanted.ok()) {
    co_await exchange.send(error_response(wanted.error()));
    co_return;
  }
  const auto loaded = co_await outcome_of(exchange.executor(), [&](Backend::Done done) {
    backend_.load_adapter(wanted->spec, wanted->replace, std::move(done));
  });
  if (loaded.ok())
    co_await exchange.send(
        text_response("plain", cat("Success: adapter '", wanted->spec.name, "' is loaded.")));
  else
    co_await exchange.send(error_response(at_field(
        loaded.error(), is_about_name(loaded.error().code()) ? "lora_name" : "lora_path")));
}

asio::awaitable<void> Service::unload_adapter(Exchange& exchange) {
  if (const auto refused = adapter_refusal(exchange.request())) {
    co_await exchange.send(error_response(*refused));
    co_return;
  }
  const auto read = [&]() -> Result<std::string> {
    MOTLEY_TRY(const json::Value body, parse_body(exchange.request()));
    return read_unload_adapter_request(body);
  };
  const auto name = read();
  if (!name.ok()) {
    co_await exchange.send(error_response(name.error()));
    co_return;
  }
  const auto unloaded = co_await outcome_of(exchange.executor(), [&](Backend::Done done) {
    backend_.unload_adapter(*name, std::move(done));
  });
  if (unloaded.ok())
    co_await exchange.send(
        text_response("plain", cat("Success: adapter '", *name, "' is unloaded.")));
  else
    co_await exchange.send(error_response(at_field(unloaded.error(), "lora_name")));
}

}  // namespace motley::server
