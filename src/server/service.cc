#include "server/service.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <iterator>
#include <utility>

#include <boost/asio/use_awaitable.hpp>

#include "base/cat.h"
#include "base/units.h"
#include "engine/adapter_log.h"
#include "server/api/adapter_request.h"
#include "server/api/api_error.h"
#include "server/api/messages/error.h"
#include "server/api/request_body.h"
#include "server/generation.h"
#include "server/handover.h"
#include "server/http/body_coding.h"
#include "server/on_workers.h"
#include "server/playground.h"
#include "server/route_path.h"
#include "server/suggestions.h"
#include "serving/prompts/path_redaction.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;

// Anthropic's other routes, which are not implemented.
constexpr std::string_view messages_prefix = "/v1/messages/";
// Limits of routes that read no body, that take only a few names, and that use the server's own
// limit.
constexpr std::size_t unused_body_bytes = 4 << 10;
constexpr std::size_t adapter_body_bytes = 64 << 10;
constexpr std::size_t any_body_bytes = static_cast<std::size_t>(-1);

// Starts an operation that reports once, from any thread, and waits for it on this executor.
template <class Start>
asio::awaitable<Result<void>> outcome_of(asio::any_io_executor executor, Start start) {
  const auto handover = std::make_shared<Handover<Result<void>>>(executor);
  start([handover](Result<void> result) { handover->give(std::move(result)); });
  co_return co_await handover->take();
}

double seconds_of_the_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Gives an adapter's error the field that names it or its folder.
Error at_field(const Error& error, std::string_view field) {
  if (error.where() == field) return error;
  const std::string_view colon = error.where().empty() ? "" : ": ";
  return {error.code(), cat(error.where(), colon, error.what()), std::string(field), error.fix()};
}

// Whether the error is about the name, rather than about the files at the path.
bool is_about_name(ErrorCode code) {
  return code == ErrorCode::invalid_argument || code == ErrorCode::busy;
}

// Of a server that serves, perhaps without some of its replicas.
std::string ready_body(const std::vector<engine::Engine::LostReplica>& lost) {
  json::Object body{{"status", "ready"}};
  json::Array replicas;
  for (const engine::Engine::LostReplica& each : lost)
    replicas.emplace_back(json::Object{{"replica", each.replica}, {"error", each.error.message()}});
  if (!lost.empty()) body.add("lost_replicas", std::move(replicas));
  return json::write(body);
}

// What a request asks for, as it names it.
void log_model(Exchange& exchange, const GenerationPlan& plan) {
  constexpr std::size_t max_name = 256;
  exchange.log_field({"model", printable(std::string_view(plan.model).substr(0, max_name))});
  if (plan.requests.empty() || plan.requests.front().adapters.size() < 2) return;
  std::vector<std::string_view> names;
  for (const lora::ScaledAdapter& each : plan.requests.front().adapters) names.push_back(each.name);
  exchange.log_field({"adapters", printable(join(names, ","))});
}

// Counts a request while it is being answered.
class InAnswer {
 public:
  InAnswer(std::atomic<std::uint64_t>& begun, std::atomic<std::int64_t>& answering)
      : answering_(answering) {
    ++begun;
    ++answering_;
  }
  InAnswer(const InAnswer&) = delete;
  InAnswer& operator=(const InAnswer&) = delete;
  ~InAnswer() { --answering_; }

 private:
  std::atomic<std::int64_t>& answering_;
};

// `service` must outlive the planner.
GenerationPlanner::Options planner_options(const Service::Options& service,
                                           const RequestLimits& limits, engine::Engine& engine) {
  GenerationPlanner::Options options = service.planner;
  options.limits = limits;
  options.is_adapter = [&engine, &find = service.find_adapter](const std::string& name) {
    if (engine.adapter(name)) return true;
    if (!find) return false;
    const auto found = find(name);
    return !found.ok() || found->has_value();
  };
  return options;
}

// Of an adapter that is to be loaded or unloaded.
Result<void> check_adapter_name(const HttpHead& head, std::string_view name) {
  if (head.may_use(name)) return {};
  return Error(ErrorCode::forbidden, cat("this key has no right to ", quote(name)), "lora_name",
               "choose a name that the key may use");
}

}  // namespace

struct Service::Route {
  using Handler = Answer (Service::*)(Exchange&);

  std::string_view method;
  std::string_view path;
  Handler answer;
  bool posts_too = false;  // beside GET
  std::size_t max_body_bytes = unused_body_bytes;
  bool guarded = true;        // by the keys
  bool while_ending = false;  // answered until the end of shutdown
  bool for_pages = true;      // web pages may use it
  // even pages that may not read the answer, because it changes nothing
  bool foreign_pages = false;
  bool exact_path = false;  // no alternative spellings, so that a proxy can block it by its path
  ErrorWriter write_error = openai_error;

  static constexpr Route get(std::string_view path, Handler answer) {
    return {.method = "GET", .path = path, .answer = answer, .foreign_pages = true};
  }
  // Answered without a key, and until the end.
  static constexpr Route get_always(std::string_view path, Handler answer) {
    Route route = get(path, answer);
    route.guarded = false;
    route.while_ending = true;
    return route;
  }
  static constexpr Route post(std::string_view path, Handler answer,
                              ErrorWriter write_error = openai_error) {
    return {.method = "POST",
            .path = path,
            .answer = answer,
            .max_body_bytes = any_body_bytes,
            .write_error = write_error};
  }
  static constexpr Route of_adapters(std::string_view path, Handler answer) {
    return {.method = "POST",
            .path = path,
            .answer = answer,
            .max_body_bytes = adapter_body_bytes,
            .for_pages = false,
            .exact_path = true,
            .write_error = adapter_error};
  }
  constexpr Route and_posts() const {
    Route route = *this;
    route.posts_too = true;
    return route;
  }
  constexpr Route with_exact_path() const {
    Route route = *this;
    route.exact_path = true;
    return route;
  }
};

std::span<const Service::Route> Service::routes() {
  static constexpr std::array all = {
      Route::get_always("/", &Service::playground),
      Route::get_always("/health", &Service::health),
      Route::get_always("/livez", &Service::live),
      Route::get_always("/liveness", &Service::live),
      Route::get_always("/readyz", &Service::health),
      Route::get_always("/ping", &Service::ping).and_posts(),
      Route::get_always("/metrics", &Service::metrics).with_exact_path(),
      Route::get("/version", &Service::version),
      Route::get("/tokenizer_info", &Service::tokenizer_info),
      Route::post("/tokenize", &Service::tokenize),
      Route::post("/v1/tokenize", &Service::tokenize),
      Route::post("/detokenize", &Service::detokenize),
      Route::post("/v1/detokenize", &Service::detokenize),
      Route::get("/v1/models", &Service::list_models),
      Route::get(model_prefix, &Service::one_model),
      Route::post("/v1/completions", &Service::completions),
      Route::post("/v1/chat/completions", &Service::chat_completions),
      Route::post("/v1/responses", &Service::responses),
      Route::post("/v1/messages", &Service::messages, messages_error),
      Route::post("/v1/messages/count_tokens", &Service::count_tokens, messages_error),
      Route::of_adapters("/v1/load_lora_adapter", &Service::load_adapter),
      Route::of_adapters("/v1/unload_lora_adapter", &Service::unload_adapter),
  };
  return all;
}

Service::Service(const text::ModelText& text, engine::Engine& engine, Options options)
    : text_(text),
      engine_(engine),
      options_(std::move(options)),
      keys_(options_.keys),
      origins_(options_.origins),
      budget_(options_.request_memory_bytes, options_.request_memory_bytes / 2),
      planner_(text_,
               planner_options(options_, limits_within(budget_.max_address_bytes()), engine_)),
      started_(std::time(nullptr)),
      shared_loads_(engine_, options_.adapter_loaded),
      workers_({.threads = options_.workers}) {}

HttpResponse Service::live_response() { return json_response(R"({"status":"alive"})"); }

bool Service::asks_for_life(const HttpHead& head) {
  const std::string path = plain_path(head.path);
  return (head.method == "GET" || head.method == "HEAD") &&
         (path == "/livez" || path == "/liveness");
}

HttpResponse Service::refuse(const Error& error, const HttpHead& head) {
  HttpResponse response = error_writer(head.path)(error, head.id);
  counts_.count("(refused)", response.status);
  return response;
}

const Service::Route* Service::route_at(std::string_view path) {
  const std::string plain = plain_path(path);
  const auto found = std::ranges::find_if(routes(), [&](const Route& route) {
    if (route.path == model_prefix) return plain.starts_with(model_prefix);
    return (route.exact_path ? path : plain) == route.path;
  });
  return found == routes().end() ? nullptr : &*found;
}

ErrorWriter Service::error_writer(std::string_view path) {
  if (plain_path(path).starts_with(messages_prefix)) return messages_error;
  const Route* const route = route_at(path);
  return route == nullptr ? openai_error : route->write_error;
}

HeadVerdict Service::admit(const HttpHead& head) {
  const Route* const route = route_at(head.path);
  // Of one reading of the files.
  const std::shared_ptr<const ApiKeys> keys = keys_.get();
  const ApiKeys::Key* const key = keys->find(head.authorization, head.api_key);
  HeadVerdict verdict{.refusal = refusal(route, head, key != nullptr)};
  if (verdict.refusal) {
    counts_.count(route == nullptr ? "(none)" : route->path, verdict.refusal->status);
    if (route != nullptr && route->for_pages)
      std::ranges::move(origins_.headers(head), std::back_inserter(verdict.refusal->headers));
    return verdict;
  }
  verdict.max_body_bytes = head.method == "OPTIONS" ? unused_body_bytes : route->max_body_bytes;
  verdict.authorized = key != nullptr;
  if (key != nullptr) verdict.holder = key->holder;
  return verdict;
}

asio::awaitable<void> Service::answer(Exchange& exchange) {
  const Route* const route = route_at(exchange.request().path);
  MOTLEY_CHECK(route != nullptr, "a request to no route was let in");
  co_await dispatch(exchange, *route);
  // 499: the client disconnected before the answer, as in logs of other servers.
  counts_.count(route->path, exchange.status() == 0 ? 499 : exchange.status());
}

asio::awaitable<void> Service::dispatch(Exchange& exchange, const Route& route) {
  const HttpRequest& request = exchange.request();
  if (route.for_pages) {
    for (auto& [name, value] : origins_.headers(request))
      exchange.add_header(std::move(name), std::move(value));
  }
  if (request.method != "OPTIONS") {
    Result<void> readable;
    if (route.max_body_bytes > unused_body_bytes) readable = co_await decode(exchange);
    if (readable.ok())
      co_await (this->*route.answer)(exchange);
    else
      co_await exchange.send(route.write_error(readable.error(), request.id));
    co_return;
  }
  if (origins_.is_allowed(request.origin)) {
    exchange.add_header("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    exchange.add_header("Access-Control-Allow-Headers", "*, Authorization");
    exchange.add_header("Access-Control-Max-Age", "600");
  }
  HttpResponse nothing{.status = 204, .content_type = ""};
  co_await exchange.send(std::move(nothing));
}

// A compressed body is charged, and queued, by its decoded size.
asio::awaitable<Result<void>> Service::decode(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  const BodyCoding coding = *body_coding(request.content_encoding);
  if (coding == BodyCoding::none) co_return Result<void>();
  std::atomic<bool> gone = false;
  const auto work = [&]() -> Result<std::string> {
    const auto details = [&] { return cat("id ", request.id, ", bytes ", request.body.size()); };
    const Watchdog::Scope watched(options_.watchdog, Watchdog::Work::request, details);
    const auto charge = [&](std::size_t bytes) -> Result<void> {
      if (gone) return client_went_away();
      return exchange.charge_body(bytes);
    };
    return decode_body(request.body, coding, request.max_body_bytes, charge);
  };
  Result<std::string> body = co_await on_workers(workers_, exchange, gone, work);
  if (!body.ok()) co_return body.error();
  exchange.replace_body(*std::move(body));
  co_return Result<void>();
}

Error Service::no_route(std::string_view path) {
  std::vector<std::string_view> paths;
  for (const Route& route : routes())
    if (route.path != model_prefix) paths.push_back(route.path);
  return {ErrorCode::not_found, cat("no route ", quote(path)), "",
          path_advice(plain_path(path), paths)};
}

// The answer if the body need not be read.
std::optional<HttpResponse> Service::refusal(const Route* route, const HttpHead& head,
                                             bool has_key) const {
  const auto write_error = [&](const Error& error) {
    return error_writer(head.path)(error, head.id);
  };
  if (const auto wrong = origins_.check_host(head)) return write_error(*wrong);
  if (route == nullptr) return write_error(no_route(head.path));
  if (head.method == "OPTIONS" && route->for_pages) return std::nullopt;
  const std::string_view method = head.method == "HEAD" ? "GET" : std::string_view(head.method);
  if (method != route->method && !(route->posts_too && method == "POST")) {
    const std::string_view allowed = route->posts_too         ? "GET, HEAD, POST"
                                     : route->method == "GET" ? "GET, HEAD"
                                                              : route->method;
    HttpResponse response =
        write_error({ErrorCode::invalid_argument, cat(quote(head.method), " is not for this route"),
                     "", cat("use ", allowed)});
    response.status = 405;
    response.headers.emplace_back("Allow", allowed);
    return response;
  }
  if (const auto refused = access_refusal(*route, head, has_key)) return write_error(*refused);
  if (route->max_body_bytes <= unused_body_bytes || body_coding(head.content_encoding))
    return std::nullopt;
  HttpResponse response = write_error(
      {ErrorCode::unsupported, cat("a body that is coded as ", quote(head.content_encoding)), "",
       cat("send it as it is, or as one of ", body_codings)});
  response.status = 415;
  response.headers.emplace_back("Accept-Encoding", body_codings);
  return response;
}

std::optional<Error> Service::access_refusal(const Route& route, const HttpHead& head,
                                             bool has_key) const {
  if (route.guarded && options_.keys.required() && !has_key)
    return Error(ErrorCode::unauthorized, "no key, or a wrong one", "",
                 "send Authorization: Bearer KEY, or X-Api-Key: KEY");
  if (!route.for_pages && !options_.adapter_loading)
    return Error(ErrorCode::forbidden, "adapters can't be loaded or unloaded here", "",
                 "start the server with --allow-adapter-loading");
  // A web page in a browser on this machine must not use routes without keys.
  if (!route.for_pages && !head.origin.empty())
    return Error(ErrorCode::forbidden, "a web page can't load or unload adapters", "",
                 "send the request without Origin, from a program");
  // Pages have no key; and a gateway in front of a server with keys may use another Host.
  if (!options_.keys.required() && !route.foreign_pages && origins_.is_foreign(head))
    return Error(ErrorCode::forbidden,
                 cat("web pages of ", quote(head.origin), " may not use this server"), "",
                 "start it with --cors-origin and their origin");
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

// On this thread, from what others have published: it is answered even if they are busy.
Result<void> Service::check_health() const {
  Result<void> health = engine_.health();
  if (health.ok() && options_.health) health = options_.health();
  if (health.ok() && options_.watchdog != nullptr) {
    if (auto stall = options_.watchdog->stall()) health = *std::move(stall);
  }
  if (shutting_down_)
    health = Error(ErrorCode::unavailable, "the server is shutting down", "", "ask another");
  if (health.ok()) return {};
  return std::move(health).error().as(ErrorCode::unavailable);
}

asio::awaitable<void> Service::health(Exchange& exchange) {
  exchange.log_quietly();
  const Result<void> health = check_health();
  if (health.ok())
    co_await exchange.send(json_response(ready_body(engine_.lost_replicas())));
  else
    co_await exchange.send(error_response(health.error()));
}

asio::awaitable<void> Service::live(Exchange& exchange) {
  exchange.log_quietly();
  co_await exchange.send(live_response());
}

asio::awaitable<void> Service::ping(Exchange& exchange) {
  exchange.log_quietly();
  const Result<void> health = check_health();
  HttpResponse response{.content_type = ""};
  if (!health.ok()) response = error_response(health.error());
  co_await exchange.send(std::move(response));
}

asio::awaitable<void> Service::metrics(Exchange& exchange) {
  exchange.log_quietly();
  std::string page = metrics_page(engine_.stats(), counts_,
                                  {.model = options_.planner.base,
                                   .now = seconds_of_the_epoch(),
                                   .used_bytes = budget_.used_bytes(),
                                   .limit_bytes = budget_.max_bytes()});
  if (options_.http_stats) page += http_metrics(options_.http_stats());
  page += process_metrics(options_.watchdog);
  co_await exchange.send(text_response("plain; version=0.0.4", std::move(page)));
}

asio::awaitable<void> Service::completions(Exchange& exchange) {
  return generate(exchange, &GenerationPlanner::completion);
}

asio::awaitable<void> Service::chat_completions(Exchange& exchange) {
  return generate(exchange, &GenerationPlanner::chat);
}

asio::awaitable<void> Service::responses(Exchange& exchange) {
  return generate(exchange, &GenerationPlanner::responses);
}

asio::awaitable<void> Service::messages(Exchange& exchange) {
  return generate(exchange, &GenerationPlanner::messages);
}

void Service::say(const serving::Notices& notices, Exchange& exchange) {
  for (auto& [name, value] : notice_headers(notices))
    exchange.add_header(std::move(name), std::move(value));
  ignored_.say(notices.ignored);
}

template <class Plan>
asio::awaitable<Result<Plan>> Service::plan(Exchange& exchange, Planning<Plan> planning) {
  std::atomic<bool> cancelled = false;
  const auto work = [&]() -> Result<Plan> {
    const HttpRequest& request = exchange.request();
    const auto details = [&] { return cat("id ", request.id, ", bytes ", request.body.size()); };
    const Watchdog::Scope watched(options_.watchdog, Watchdog::Work::request, details);
    MOTLEY_TRY(const json::Value body, parse_body(request));
    const auto check = [&](std::span<const lora::ScaledAdapter> named) {
      return check_adapters(request, named);
    };
    return (planner_.*planning)(body, {.cancelled = &cancelled,
                                       .client = request.client(),
                                       .weight = request.weight(),
                                       .check_adapters = check});
  };
  co_return co_await on_workers(workers_, exchange, cancelled, work);
}

template asio::awaitable<Result<TokenizePlan>> Service::plan(Exchange& exchange,
                                                             Planning<TokenizePlan> planning);

Result<void> Service::charge(const GenerationPlan& plan, const HttpHead& head,
                             MemoryBudget::Share& share) {
  if (Result<void> fits = check_charge(plan.charge, plan.limits); !fits.ok()) {
    counts_.refuse("too_large");
    return fits;
  }
  const MemoryBudget::Refusal refusal = share.grow(plan.charge.admitted_bytes);
  if (refusal == MemoryBudget::Refusal::none) return {};
  counts_.refuse("memory");
  const std::string needs = cat("the request needs ", format_bytes(plan.charge.admitted_bytes),
                                " (", plan.charge.fields, "), and ");
  if (refusal == MemoryBudget::Refusal::all)
    return Error(ErrorCode::busy,
                 cat(needs, "others have taken ", format_bytes(budget_.used_bytes()), " of the ",
                     format_bytes(budget_.max_bytes()), " for requests"),
                 "", "try again later");
  return Error(ErrorCode::busy,
               cat(needs, "others from ", head.client(), " have taken ",
                   format_bytes(budget_.used_bytes(head.client())), " of the ",
                   format_bytes(budget_.max_address_bytes()), " for one ",
                   head.holder ? "client" : "address"),
               "", "try again later, or send fewer at once");
}

std::vector<engine::AdapterInfo> Service::adapters_for(const HttpHead& head) const {
  std::vector<engine::AdapterInfo> adapters = engine_.adapters();
  std::erase_if(adapters, [&](const auto& each) { return !head.may_use(each.name); });
  return adapters;
}

// What a key may not use is to its holder as if it were not there.
Result<void> Service::check_adapters(const HttpHead& head,
                                     std::span<const lora::ScaledAdapter> adapters) const {
  for (const lora::ScaledAdapter& each : adapters)
    if (!head.may_use(each.name))
      return unknown_model(each.name, options_.planner.base, adapters_for(head));
  return {};
}

asio::awaitable<Result<void>> Service::bring_adapters(
    Exchange& exchange, const std::vector<lora::ScaledAdapter>& adapters) {
  if (!options_.find_adapter) co_return Result<void>();
  for (const lora::ScaledAdapter& each : adapters) {
    if (engine_.adapter(each.name)) continue;
    std::atomic<bool> gone = false;
    const auto find = [&] { return options_.find_adapter(each.name); };
    const auto found = co_await on_workers(workers_, exchange, gone, find);
    const auto refused = [&](const Error& error) {
      const std::filesystem::path folder = options_.adapter_dir / each.name;
      return at_field(serving::without_server_paths(error, folder, each.name), "model");
    };
    if (!found.ok()) co_return refused(found.error());
    if (!*found) continue;
    const Result<void> loaded = co_await outcome_of(
        exchange.executor(),
        [&](const engine::Engine::Done& done) { shared_loads_.load(**found, done); });
    if (!loaded.ok()) co_return refused(loaded.error());
  }
  co_return Result<void>();
}

asio::awaitable<void> Service::generate(Exchange& exchange, Planning<GenerationPlan> planning) {
  const InAnswer counted(begun_, answering_);
  const std::string client = exchange.request().client();
  auto planned = co_await plan(exchange, planning);
  exchange.drop_body();
  MemoryBudget::Share share(budget_, client);
  if (exchange.gone()) co_return;
  if (planned.ok()) log_model(exchange, *planned);
  Result<void> admitted =
      planned.ok() ? charge(*planned, exchange.request(), share) : planned.error();
  if (admitted.ok()) {
    const std::vector<lora::ScaledAdapter> named = planned->requests.front().adapters;
    admitted = co_await bring_adapters(exchange, named);
  }
  if (exchange.gone()) co_return;
  const ErrorWriter write_error = error_writer(exchange.request().path);
  if (!admitted.ok()) {
    co_await exchange.send(write_error(admitted.error(), exchange.request().id));
    co_return;
  }
  say(planned->notices, exchange);
  co_await run_generation(exchange, engine_, *std::move(planned), options_.planner.base,
                          std::move(share));
}

asio::awaitable<void> Service::load_adapter(Exchange& exchange) {
  std::filesystem::path sent;
  // The file system and parsing may take time.
  std::atomic<bool> gone = false;
  const auto read = [&]() -> Result<LoadAdapterRequest> {
    MOTLEY_TRY(const json::Value body, parse_body(exchange.request()));
    MOTLEY_TRY(LoadAdapterRequest request, read_load_adapter_request(body));
    const std::vector<std::string>& aliases = options_.planner.aliases;
    MOTLEY_TRY_VOID(check_adapter_name(exchange.request(), request.spec.name));
    if (request.spec.name == options_.planner.base ||
        std::ranges::find(aliases, request.spec.name) != aliases.end())
      return Error(ErrorCode::invalid_argument, "the base model has that name", "lora_name",
                   "choose another");
    sent = request.spec.path;
    MOTLEY_TRY_VOID(place_adapter(request.spec, options_.adapter_root));
    return request;
  };
  const auto wanted = co_await on_workers(workers_, exchange, gone, read);
  if (!wanted.ok()) {
    co_await exchange.send(adapter_error(wanted.error(), {}));
    co_return;
  }
  const auto loaded =
      co_await outcome_of(exchange.executor(), [&](const engine::Engine::Done& done) {
        shared_loads_.load_explicitly(wanted->spec, wanted->replace, done);
      });
  if (loaded.ok()) {
    co_await exchange.send(
        text_response("plain", cat("Success: adapter '", wanted->spec.name, "' is loaded.")));
    co_return;
  }
  co_await exchange.send(
      adapter_error(at_field(serving::without_server_paths(loaded.error(), wanted->spec.path, sent),
                             is_about_name(loaded.error().code()) ? "lora_name" : "lora_path"),
                    {}));
}

asio::awaitable<void> Service::unload_adapter(Exchange& exchange) {
  std::atomic<bool> gone = false;
  const auto read = [&]() -> Result<std::string> {
    MOTLEY_TRY(const json::Value body, parse_body(exchange.request()));
    MOTLEY_TRY(std::string name, read_unload_adapter_request(body));
    MOTLEY_TRY_VOID(check_adapter_name(exchange.request(), name));
    return name;
  };
  const auto name = co_await on_workers(workers_, exchange, gone, read);
  if (!name.ok()) {
    co_await exchange.send(adapter_error(name.error(), {}));
    co_return;
  }
  const auto unloaded = co_await outcome_of(exchange.executor(), [&](engine::Engine::Done done) {
    engine::unload_and_log(engine_, *name, std::move(done));
  });
  if (unloaded.ok())
    co_await exchange.send(
        text_response("plain", cat("Success: adapter '", *name, "' is unloaded.")));
  else
    co_await exchange.send(adapter_error(at_field(unloaded.error(), "lora_name"), {}));
}

}  // namespace motley::server
