// motley serve: the HTTP server over an engine.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <optional>
#include <sys/resource.h>
#include <thread>

#include "base/cat.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/engine_stack.h"
#include "cli/signals.h"
#include "cli/start_log.h"
#include "server/api/api_error.h"
#include "server/engine_backend.h"
#include "server/http/http_server.h"
#include "server/service.h"
#include "text/model_text.h"

namespace motley::cli {
namespace {

constexpr auto look_up = std::chrono::milliseconds(200);
// While the model is loaded; a start ends up to so much later.
constexpr auto look_up_loading = std::chrono::milliseconds(20);

struct Settings {
  ModelSettings model;
  server::HttpServer::Options http;
  server::ApiKeys keys;
  bool adapter_loading = false;
  std::optional<std::filesystem::path> adapter_root;
};

Result<Settings> read_settings(const Arguments& arguments) {
  Settings settings;
  MOTLEY_TRY(settings.model, read_model_settings(arguments));
  if (const std::string* const host = arguments.value("--host")) settings.http.host = *host;
  MOTLEY_TRY(const std::int64_t port, integer_option(arguments, "--port", 0, 65535, 8000));
  settings.http.port = static_cast<std::uint16_t>(port);
  MOTLEY_TRY(const std::int64_t seconds,
             integer_option(arguments, "--client-timeout", 1, 86'400, 30));
  settings.http.limits.request_time = std::chrono::seconds(seconds);
  settings.http.limits.write_time = std::chrono::seconds(seconds);
  settings.adapter_loading = arguments.has("--allow-adapter-loading");
  if (const std::string* const root = arguments.value("--adapter-root")) {
    MOTLEY_TRY(const PathKind kind, path_kind(*root));
    if (kind != PathKind::folder)
      return Error(ErrorCode::invalid_argument, cat("no such folder ", quote(*root)),
                   "--adapter-root", "name one that is there");
    settings.adapter_root = *root;
  }
  if (const std::string* const file = arguments.value("--api-key-file")) {
    MOTLEY_TRY(settings.keys, server::ApiKeys::load(*file));
  }
  return settings;
}

// As many connections as the system allows.
void raise_file_limit() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

// The address is taken before the model is loaded, so that a port in use is known at once and
// whoever asks meanwhile hears that there is nothing yet.
class Door {
 public:
  static Result<std::unique_ptr<Door>> open(const server::HttpServer::Options& options) {
    std::unique_ptr<Door> door(new Door);
    MOTLEY_TRY(door->http_, server::HttpServer::listen(
                                options,
                                [door = door.get()](server::Exchange& exchange) {
                                  return door->answer(exchange);
                                },
                                server::error_response));
    door->http_->start();
    return door;
  }

  void lead_to(server::Service& service) { service_ = &service; }
  server::HttpServer& http() { return *http_; }

 private:
  Door() = default;

  boost::asio::awaitable<void> answer(server::Exchange& exchange) {
    if (server::Service* const service = service_) {
      co_await service->answer(exchange);
      co_return;
    }
    const Error loading(ErrorCode::unavailable, "the model is being loaded", "",
                        "try again in a moment");
    co_await exchange.send(server::error_response(loading));
  }

  std::atomic<server::Service*> service_{nullptr};
  std::unique_ptr<server::HttpServer> http_;
};

// Until the model is there nothing runs that would have to be finished: a signal ends the process.
class EndsWhileLoading {
 public:
  explicit EndsWhileLoading(const HeldSignals& signals)
      : watching_([&signals](const std::stop_token& loaded) {
          while (!loaded.stop_requested()) {
            if (!signals.wait(look_up_loading)) continue;
            std::fputs("motley: interrupted while the model was being loaded: start it again\n",
                       stderr);
            std::_Exit(1);
          }
        }) {}

 private:
  std::jthread watching_;
};

// An address of IPv6 has colons of its own.
std::string host_of_url(const std::string& host) {
  return host.find(':') == std::string::npos ? host : cat("[", host, "]");
}

// Until somebody wants the server to end, or the engine has; what runs then is finished, unless
// somebody asks again.
Result<void> serve_until_told(const HeldSignals& signals, engine::Engine& engine,
                              server::Service& service, server::HttpServer& http) {
  while (!signals.wait(look_up)) MOTLEY_TRY_VOID(engine.health());
  log::info("serve.ending", {{"connections", http.connections()}});
  service.shut_down();
  const std::future<void> drained = std::async(std::launch::async, [&] { http.drain(); });
  while (drained.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    if (!signals.wait(look_up)) continue;
    log::info("serve.cutting_off", {});
    engine.shutdown(engine::Engine::Drain::cancel);
    http.stop();
  }
  return {};
}

Result<void> run_serve(const Arguments& arguments, Output output) {
  MOTLEY_TRY(const Settings settings, read_settings(arguments));
  const HeldSignals signals;
  raise_file_limit();
  const SteadyClock clock;
  const TimePoint start = clock.now();
  StartLog parts(clock);
  MOTLEY_TRY(const text::ModelText text, text::ModelText::load(settings.model.model));
  parts.done("tokenizer and templates");
  MOTLEY_TRY(const std::unique_ptr<Door> door, Door::open(settings.http));
  std::optional<EndsWhileLoading> loading(signals);
  auto loaded = EngineStack::load(settings.model, text);
  loading.reset();
  if (!loaded.ok()) {
    door->http().stop();
    return std::move(loaded).error();
  }
  const std::unique_ptr<EngineStack> stack = *std::move(loaded);
  server::EngineBackend backend(stack->engine());
  server::Service service(text, backend,
                          {.planner = {.base = settings.model.name,
                                       .vocabulary = stack->config().vocabulary,
                                       .max_sequence_tokens = stack->engine().max_sequence_tokens(),
                                       .special_in_said = settings.model.special_in_said},
                           .keys = settings.keys,
                           .adapter_loading = settings.adapter_loading,
                           .adapter_root = settings.adapter_root});
  door->lead_to(service);
  if (settings.adapter_loading && !settings.adapter_root)
    log::warning("serve.adapters_from_anywhere",
                 {{"advice", "give --adapter-root where clients are not yourself"}});
  log::info("start.ready", {{"seconds", seconds(clock.now() - start)}});
  output(cat("serving ", printable(settings.model.name), " at http://",
             host_of_url(settings.http.host), ":", door->http().port(), "\n"));
  std::fflush(stdout);

  const Result<void> ended = serve_until_told(signals, stack->engine(), service, door->http());
  // No handler may run when the service goes, and no sink be left when the door does.
  stack->engine().shutdown(engine::Engine::Drain::cancel);
  door->http().stop();
  return ended;
}

}  // namespace

Command serve_command() {
  std::vector<OptionSpec> options = {
      {"--host", "ADDRESS", "where to listen (127.0.0.1)"},
      {"--port", "N", "where to listen; 0 lets the system choose (8000)"},
      {"--client-timeout", "SECONDS", "for a request to come, and for an answer to be taken (30)"},
      {"--allow-adapter-loading", "", "lets clients load and unload adapters"},
      {"--adapter-root", "DIR", "the folder that those must lie in"},
      {"--api-key-file", "F", "a file of keys, one a line; requests need one of them"}};
  const std::vector<OptionSpec> model = model_option_specs();
  options.insert(options.end(), model.begin(), model.end());
  return {
      .spec = {.name = "serve",
               .summary = "an HTTP server that speaks OpenAI's protocol",
               .positionals = {"MODEL"},
               .options = std::move(options),
               .examples = {"motley serve models/demo --adapter cynic=models/demo/adapters/cynic",
                            "motley serve models/demo --allow-adapter-loading --adapter-root "
                            "models/demo/adapters --port 0",
                            "motley serve models/demo --host 0.0.0.0 --api-key-file keys.txt"}},
      .run = run_serve};
}

}  // namespace motley::cli
