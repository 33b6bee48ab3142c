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
#include "server/api/api_error.h"
#include "server/api/request_body.h"
#include "server/api/suggestions.h"
#include "server/async/outcome_of.h"
#include "server/generation.h"
#include "server/http/wire/body_coding.h"
#include "server/on_workers.h"
#include "server/playground.h"
#include "server/routes/plain_path.h"
#include "serving/prompts/path_redaction.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;

double seconds_of_the_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
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
  if (service.default_adapter == Service::Options::pushed_default)
    options.default_adapter = [&engine, base = options.base] {
      return engine.adapter(base) ? base : std::string();
    };
  else if (!service.default_adapter.empty())
    options.default_adapter = [name = service.default_adapter] { return name; };
  return options;
}

// Names that no adapter may take.
std::vector<std::string> base_names(const Service::Options& options) {
  std::vector<std::string> names = options.planner.aliases;
  if (options.default_adapter != Service::Options::pushed_default)
    names.push_back(options.planner.base);
  return names;
}

}  // namespace

Service::Service(const text::ModelText& text, engine::Engine& engine, Options options)
    : text_(text),
      engine_(engine),
      options_(std::move(options)),
      admission_(routes(), {.keys = options_.keys,
                            .admin_keys = options_.admin_keys,
                            .origins = options_.origins,
                            .adapter_loading = options_.adapter_loading}),
      budget_(options_.request_memory_bytes,
              options_.request_memory_bytes / MemoryBudget::client_part),
      planner_(text_,
               planner_options(options_, limits_within(budget_.max_address_bytes()), engine_)),
      started_(std::time(nullptr)),
      shared_loads_(engine_, options_.adapter_loaded),
      workers_({.threads = options_.workers}),
      loads_(engine_, shared_loads_, workers_,
             {.base_names = base_names(options_), .root = options_.adapter_root}),
      under_way_(engine_),
      trainers_(
          {.engine = &engine_, .loads = &loads_, .requests = &under_way_, .workers = &workers_},
          {.info = options_.info,
           .takes_adapters = options_.adapter_loading || options_.admin_keys.required()}),
      art_({.engine = &engine_, .loads = &loads_, .workers = &workers_}),
      pushes_({.engine = &engine_,
               .loads = &shared_loads_,
               .workers = &workers_,
               .base = options_.model},
              {.memory = options_.push_memory,
               .root = options_.adapter_root,
               .base_names = base_names(options_)}) {}

// What stands still must come to its end.
void Service::shut_down() {
  admission_.shut_down();
  std::vector<std::string> paused = engine_.paused().adapters();
  paused.emplace_back();
  for (std::string& adapter : paused)
    engine_.resume(std::move(adapter), [](const Result<void>&) {});
}

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

ErrorWriter Service::error_writer(std::string_view path) { return routes().error_writer(path); }

HeadVerdict Service::admit(const HttpHead& head) {
  const RouteTable::Match match = routes().find(head.path, head.method);
  HeadVerdict verdict = admission_.admit(head, match);
  if (verdict.refusal)
    counts_.count(match.path == nullptr ? "(none)" : match.path->fixed_path(),
                  verdict.refusal->status);
  return verdict;
}

asio::awaitable<void> Service::answer(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  const RouteTable::Match match = routes().find(request.path, request.method);
  MOTLEY_CHECK(match.path != nullptr, "a request to no route was let in");
  for (auto& [name, value] : admission_.page_headers(request, match))
    exchange.add_header(std::move(name), std::move(value));
  if (match.route != nullptr)
    co_await dispatch(exchange, *match.route);
  else
    co_await exchange.send(admission_.preflight(request, match));
  // 499: the client disconnected before the answer, as in logs of other servers.
  counts_.count(match.path->fixed_path(), exchange.status() == 0 ? 499 : exchange.status());
}

asio::awaitable<void> Service::dispatch(Exchange& exchange, const Route& route) {
  Result<void> readable;
  if (route.body == Body::whole) readable = co_await decode(exchange);
  if (readable.ok())
    co_await route.answer(*this, exchange);
  else
    co_await exchange.send(route.write_error(readable.error(), exchange.request().id));
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
  if (admission_.shutting_down())
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
  page += holder_metrics(holder_counts_.snapshot());
  page += pushes_.metrics();
  page += pause_metrics(engine_.paused());
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

asio::awaitable<void> Service::generate_tokens(Exchange& exchange) {
  return generate(exchange, &GenerationPlanner::tokens);
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
                                       .write_error = error_writer(request.path),
                                       .check_adapters = check});
  };
  co_return co_await on_workers(workers_, exchange, cancelled, work);
}

template asio::awaitable<Result<TokenizePlan>> Service::plan(Exchange& exchange,
                                                             Planning<TokenizePlan> planning);
template asio::awaitable<Result<RenderPlan>> Service::plan(Exchange& exchange,
                                                           Planning<RenderPlan> planning);

Result<void> Service::charge(const GenerationPlan& plan, const HttpHead& head,
                             MemoryBudget::Share& share) {
  MOTLEY_TRY_VOID(check_charge(plan.charge, plan.limits));
  const MemoryBudget::Refusal refusal = share.grow(plan.charge.admitted_bytes);
  if (refusal == MemoryBudget::Refusal::none) return {};
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
  const engine::Usage usage = co_await answer_generation(exchange, planning);
  const bool refused = exchange.status() == http_status(ErrorCode::busy);
  if (const auto& holder = exchange.request().holder)
    holder_counts_.count(holder->name, usage, refused);
}

asio::awaitable<engine::Usage> Service::answer_generation(Exchange& exchange,
                                                          Planning<GenerationPlan> planning) {
  const std::string client = exchange.request().client();
  RequestsUnderWay::Entry entry(under_way_, exchange.request().id, client);
  auto planned = co_await plan(exchange, planning);
  exchange.drop_body();
  MemoryBudget::Share share(budget_, client);
  if (exchange.gone()) co_return engine::Usage();
  if (planned.ok()) {
    log_model(exchange, *planned);
    entry.add_id(planned->request_id);
  }
  Result<void> admitted;
  if (planned.ok()) {
    admitted = charge(*planned, exchange.request(), share);
    if (!admitted.ok()) counts_.refuse(admitted.error().code());
  } else {
    admitted = planned.error();
  }
  if (admitted.ok()) {
    const std::vector<lora::ScaledAdapter> named = planned->requests.front().adapters;
    admitted = co_await bring_adapters(exchange, named);
  }
  if (exchange.gone()) co_return engine::Usage();
  const ErrorWriter write_error = error_writer(exchange.request().path);
  if (!admitted.ok()) {
    co_await exchange.send(write_error(admitted.error(), exchange.request().id));
    co_return engine::Usage();
  }
  say(planned->notices, exchange);
  co_return co_await run_generation(exchange, engine_, *std::move(planned), options_.planner.base,
                                    entry, std::move(share));
}

asio::awaitable<void> Service::load_adapter(Exchange& exchange) {
  const auto name = co_await loads_.load(exchange, AdapterLoads::Taken::as_asked);
  if (name.ok())
    co_await exchange.send(
        text_response("plain", cat("Success: LoRA adapter '", *name, "' added successfully.")));
  else
    co_await exchange.send(adapter_error(name.error(), {}));
}

asio::awaitable<void> Service::unload_adapter(Exchange& exchange) {
  const auto name = co_await loads_.unload(exchange);
  if (name.ok())
    co_await exchange.send(
        text_response("plain", cat("Success: LoRA adapter '", *name, "' removed successfully.")));
  else
    co_await exchange.send(adapter_error(name.error(), {}));
}

}  // namespace motley::server
