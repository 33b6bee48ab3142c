// motley serve: the HTTP server over an engine.

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <poll.h>
#include <set>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include "base/cat.h"
#include "base/log.h"
#include "base/system/mapped_files.h"
#include "base/system/memory.h"
#include "base/system/out_of_memory.h"
#include "base/system/watchdog.h"
#include "base/units.h"
#include "base/version.h"
#include "cli/check_prompt.h"
#include "cli/command.h"
#include "cli/engine_stack_source.h"
#include "cli/forced_end.h"
#include "cli/idle_memory.h"
#include "cli/input_end.h"
#include "cli/signals.h"
#include "engine/adapter_check.h"
#include "engine/adapter_name.h"
#include "net/server_url.h"
#include "server/api/server_info.h"
#include "server/early_listener.h"
#include "server/http/http_server.h"
#include "server/service.h"
#include "serving/devices.h"
#include "serving/memory_plan.h"
#include "serving/served_engines.h"
#include "serving/start_log.h"
#include "text/model_text.h"

namespace motley::cli {
namespace {

constexpr auto look_up = std::chrono::milliseconds(200);
// The interval of checks while the model loads; delays the end of a start by up to this.
constexpr auto look_up_loading = std::chrono::milliseconds(20);
// For threads to end and for memory to be freed, after the last answer.
constexpr auto end_time = std::chrono::seconds(15);

struct KeyFiles {
  std::optional<std::filesystem::path> plain, holders, admin;

  bool given() const { return plain || holders || admin; }
  Result<server::ApiKeys> read_admin() const {
    if (!admin) return server::ApiKeys();
    return server::ApiKeys::load(*admin);
  }
  Result<server::ApiKeys> read() const {
    server::ApiKeys keys;
    if (holders) {
      MOTLEY_TRY(keys, server::ApiKeys::load_holders(*holders));
    }
    if (plain) {
      MOTLEY_TRY(server::ApiKeys others, server::ApiKeys::load(*plain));
      if (auto added = keys.add(std::move(others)); !added.ok())
        return std::move(added).error().within(plain->string());
    }
    return keys;
  }
};

struct Settings {
  ModelSettings model;
  server::HttpServer::Options http;
  server::ApiKeys keys;
  server::ApiKeys admin_keys;
  KeyFiles key_files;
  std::vector<std::string> cors_origins;
  std::chrono::seconds drain_timeout{};
  std::chrono::seconds watchdog{};  // 0: none
  bool ends_with_stdin = false;
  bool private_prefixes = false;
  bool strict_fields = false;
  bool request_templates = false;
  bool processed_logprobs = false;
  bool adapter_check = true;
  serving::FormNames forms;
  bool adapter_loading = false;
  std::optional<std::filesystem::path> adapter_root;
  std::string default_adapter;
  std::uint64_t request_memory = serving::max_request_memory;
  server::PushMemory::Options pushes;
};

// Nothing: the option is not given.
Result<std::optional<std::uint64_t>> read_memory(const Arguments& arguments,
                                                 std::string_view option) {
  const std::string* const size = arguments.value(option);
  if (size == nullptr) return std::optional<std::uint64_t>();
  const auto read = parse_size(*size);
  if (read.ok() && *read > 0) return std::optional(*read);
  return Error(ErrorCode::invalid_argument, cat("not a size: ", quote(*size)), std::string(option),
               "give bytes, or a number with K, M, G or T");
}

// What requests and pushed adapters may hold.
Result<void> read_held_memory(const Arguments& arguments, Settings& settings) {
  MOTLEY_TRY(auto requests, read_memory(arguments, "--request-memory"));
  MOTLEY_TRY(auto pushes, read_memory(arguments, "--push-memory"));
  if (const auto memory = machine_memory(); memory.ok()) {
    if (!requests) requests = serving::default_request_memory(memory->total);
    if (!pushes) pushes = serving::default_push_memory(memory->total);
  }
  settings.request_memory = requests.value_or(settings.request_memory);
  settings.pushes.max_bytes = pushes.value_or(settings.pushes.max_bytes);
  const std::string* const folder = arguments.value("--push-dir");
  if (folder == nullptr) return {};
  settings.pushes.folder = *folder;
  // Whether files can be made there.
  const auto file = UnnamedFile::create(*folder);
  if (!file.ok()) return Error(file.error()).within("--push-dir");
  return {};
}

Result<void> read_logprobs(const Arguments& arguments, Settings& settings) {
  constexpr int most = engine::max_prompt_logprobs;
  MOTLEY_TRY(const std::int64_t asked,
             integer_option(arguments, "--max-logprobs", -1, most, engine::max_top_logprobs));
  settings.model.engine.max_logprobs = asked < 0 ? most : static_cast<int>(asked);
  const std::string* const mode = arguments.value("--logprobs-mode");
  if (mode == nullptr || *mode == "raw_logprobs") return {};
  settings.processed_logprobs = *mode == "processed_logprobs";
  if (settings.processed_logprobs) return {};
  return Error(ErrorCode::invalid_argument, cat("unknown mode ", quote(*mode)), "--logprobs-mode",
               "use raw_logprobs or processed_logprobs");
}

// "unix:PATH", or a path with a slash.
Result<std::filesystem::path> read_socket_path(const std::string& text) {
  if (const auto path = net::unix_socket_path(text)) return std::filesystem::path(*path);
  if (!text.starts_with("unix:") && text.find('/') != std::string::npos &&
      text.find("://") == std::string::npos)
    return std::filesystem::path(text);
  return Error(ErrorCode::invalid_argument, cat("no Unix socket: ", quote(text)), "--listen",
               "write unix:PATH; --host and --port say where to listen on the network");
}

// On a Unix socket and on the network, or on one of them.
Result<void> read_addresses(const Arguments& arguments, server::HttpServer::Options& http) {
  const std::string* const host = arguments.value("--host");
  if (host != nullptr) http.host = *host;
  MOTLEY_TRY(const std::int64_t port, integer_option(arguments, "--port", 0, 65535, 8000));
  http.port = static_cast<std::uint16_t>(port);
  const std::string* const socket = arguments.value("--listen");
  if (socket == nullptr) return {};
  MOTLEY_TRY(http.unix_socket, read_socket_path(*socket));
  http.tcp = host != nullptr || arguments.value("--port") != nullptr;
  return {};
}

Result<void> read_client_limits(const Arguments& arguments, server::HttpLimits& limits) {
  const auto patience = std::chrono::duration_cast<std::chrono::seconds>(limits.request_time);
  MOTLEY_TRY(const std::int64_t seconds,
             integer_option(arguments, "--client-timeout", 1, 86'400, patience.count()));
  limits.request_time = std::chrono::seconds(seconds);
  limits.write_time = std::chrono::seconds(seconds);
  MOTLEY_TRY(const std::int64_t connections,
             integer_option(arguments, "--max-connections", 1, 1'000'000,
                            static_cast<std::int64_t>(limits.connections)));
  limits.connections = static_cast<std::size_t>(connections);
  limits.address_connections = static_cast<std::size_t>((connections + 1) / 2);
  return {};
}

Result<Settings> read_settings(const Arguments& arguments) {
  Settings settings;
  MOTLEY_TRY(settings.model, read_model_settings(arguments));
  MOTLEY_TRY_VOID(read_addresses(arguments, settings.http));
  MOTLEY_TRY_VOID(read_client_limits(arguments, settings.http.limits));
  MOTLEY_TRY(const std::int64_t drain, integer_option(arguments, "--drain-timeout", 0, 86'400,
                                                      server::default_drain_time.count()));
  settings.drain_timeout = std::chrono::seconds(drain);
  MOTLEY_TRY(const std::int64_t watchdog, integer_option(arguments, "--watchdog", 0, 86'400, 60));
  settings.watchdog = std::chrono::seconds(watchdog);
  for (const std::string& text : arguments.values("--cors-origin")) {
    MOTLEY_TRY(std::string origin, server::OriginPolicy::parse_origin(text));
    settings.cors_origins.push_back(std::move(origin));
  }
  for (const std::string& text : arguments.values("--trusted-proxies")) {
    MOTLEY_TRY(server::TrustedProxies proxies, server::TrustedProxies::parse(text));
    settings.http.proxies.add(std::move(proxies));
  }
  settings.ends_with_stdin = arguments.has("--end-with-stdin");
  settings.private_prefixes = arguments.has("--private-prefixes");
  MOTLEY_TRY_VOID(read_held_memory(arguments, settings));
  MOTLEY_TRY_VOID(read_logprobs(arguments, settings));
  settings.model.engine.routed_experts = arguments.has("--enable-return-routed-experts");
  settings.strict_fields = arguments.has("--strict-fields");
  settings.adapter_check = !arguments.has("--no-adapter-check");
  settings.request_templates = arguments.has("--allow-request-templates");
  if (const std::string* const form = arguments.value("--tool-form")) settings.forms.calls = *form;
  if (const std::string* const form = arguments.value("--reasoning-form"))
    settings.forms.reasoning = *form;
  MOTLEY_TRY_VOID(settings.forms.check());
  settings.adapter_loading = arguments.has("--allow-adapter-loading");
  if (const std::string* const root = arguments.value("--adapter-root")) {
    MOTLEY_TRY(const PathKind kind, path_kind(*root));
    if (kind != PathKind::folder)
      return Error(ErrorCode::invalid_argument, cat("no such folder ", quote(*root)),
                   "--adapter-root", "name one that is there");
    settings.adapter_root = *root;
  }
  if (const std::string* const adapter = arguments.value("--default-adapter")) {
    if (!engine::is_adapter_name(*adapter))
      return Error(ErrorCode::invalid_argument, cat("not an adapter's name: ", quote(*adapter)),
                   "--default-adapter", cat("use ", engine::adapter_name_rule, "; or pushed"));
    settings.default_adapter = *adapter;
  }
  if (const std::string* const file = arguments.value("--api-key-file"))
    settings.key_files.plain = *file;
  if (const std::string* const file = arguments.value("--keys")) settings.key_files.holders = *file;
  if (const std::string* const file = arguments.value("--admin-key-file"))
    settings.key_files.admin = *file;
  MOTLEY_TRY(settings.keys, settings.key_files.read());
  MOTLEY_TRY(settings.admin_keys, settings.key_files.read_admin());
  return settings;
}

void log_forms(const serving::ChatFormat& format, const text::ModelText& text) {
  const auto name = [](const auto* form) { return form == nullptr ? "none" : form->name; };
  log::info("serve.forms",
            {{"tools", name(format.calls)},
             {"reasoning", format.is_harmony() ? "gpt_oss" : name(format.reasoning)}});
  if (format.calls == nullptr && serving::shows_tools(text))
    log::warning("serve.tool_form_unknown",
                 {{"effect", "calls that the model writes stay text"},
                  {"advice", "name the form with --tool-form, if it has one"}});
}

// Allows as many connections as the system does.
void raise_file_limit() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

// Until the model is loaded there is no work to finish: a signal ends the process, and so does the
// end of `input` (null: is not looked at). SIGHUP is kept for later.
class EndsWhileLoading {
 public:
  explicit EndsWhileLoading(const HeldSignals& signals, InputEnd* input, std::atomic<bool>& hangup)
      : watching_([&signals, input, &hangup](const std::stop_token& loaded) {
          while (!loaded.stop_requested()) {
            const int signal = signals.wait(look_up_loading);
            if (signal == SIGHUP) hangup = true;
            const bool ended = input != nullptr && input->reached();
            if (!ended && (signal == 0 || signal == SIGHUP)) continue;
            log::write_before_end(
                log::failure_line("interrupted while the model was being loaded: start it again"));
            std::_Exit(1);
          }
        }) {}

 private:
  std::jthread watching_;
};

// IPv6 addresses contain colons and need brackets.
std::string host_of_url(const std::string& host) {
  return host.find(':') == std::string::npos ? host : cat("[", host, "]");
}

// Prints an address without blocking, even if the reader has stopped. With JSON it is in the log
// alone.
void announce(Output output, const std::string& model, const std::string& address) {
  if (log::settings().format == log::Format::json) return;
  const std::string line = cat("serving ", printable(model), " at ", printable(address), "\n");
  pollfd reader{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  if (::poll(&reader, 1, 1000) == 0) return log::warning("serve.output_not_read", {{"line", line}});
  output(line);
  std::fflush(stdout);
}

void announce(Output output, const Settings& settings, std::uint16_t port) {
  const std::string& model = settings.model.name;
  if (settings.http.tcp) {
    const std::string url = cat("http://", host_of_url(settings.http.host), ":", port);
    log::info("serve.listening", {{"model", model}, {"url", url}, {"port", port}});
    announce(output, model, url);
  }
  if (settings.http.unix_socket.empty()) return;
  const std::string socket = cat("unix:", settings.http.unix_socket.native());
  log::info("serve.listening", {{"model", model}, {"url", socket}});
  announce(output, model, socket);
}

// The running parts of the server, and the limits of its shutdown.
struct Serving {
  const HeldSignals& signals;
  InputEnd* input;  // its end asks the server to end; null: it is not looked at
  ForcedEnd& forced_end;
  const KeyFiles& key_files;
  engine::Engine& engine;
  server::Service& service;
  server::HttpServer& http;
  std::chrono::seconds drain_timeout;
  MemoryReserve& reserve;
};

// Logs each replica that has stopped, once.
void report_lost(const engine::Engine& engine, std::set<int>& reported) {
  for (const auto& each : engine.lost_replicas()) {
    if (!reported.insert(each.replica).second) continue;
    log::error("serve.replica_lost", {{"replica", each.replica},
                                      {"reason", each.error.message()},
                                      {"advice", "the others serve on; start the server again"}});
  }
}

// At SIGHUP. Requests that are running keep what their old keys allowed.
void read_keys_again(const Serving& serving) {
  if (!serving.key_files.given())
    return log::info("serve.hangup_ignored",
                     {{"why", "there is no --keys or --api-key-file to read again"}});
  auto keys = within_memory([&] { return serving.key_files.read(); });
  auto admin_keys = within_memory([&] { return serving.key_files.read_admin(); });
  if (!keys.ok() || !admin_keys.ok()) {
    const Error& why = keys.ok() ? admin_keys.error() : keys.error();
    return log::error("serve.keys_kept",
                      {{"why", why.message()}, {"advice", "mend the file, and send SIGHUP again"}});
  }
  const std::size_t count = keys->count() + admin_keys->count();
  serving.service.set_keys(*std::move(keys));
  serving.service.set_admin_keys(*std::move(admin_keys));
  log::info("serve.keys_read", {{"keys", count}});
}

// Runs until a signal or the end of the input asks the server to end, or the engine has stopped.
// Running requests then finish, unless they take too long or a second signal arrives.
Result<void> serve_until_ended(const Serving& serving) {
  IdleMemory idle;
  std::set<int> lost;
  while (true) {
    const int signal = serving.signals.wait(look_up);
    if (signal == SIGHUP)
      read_keys_again(serving);
    else if (signal != 0)
      break;
    if (serving.input != nullptr && serving.input->reached()) break;
    report_lost(serving.engine, lost);
    MOTLEY_TRY_VOID(serving.engine.health());
    serving.reserve.restore();
    if (idle.is_time(serving.service.requests_begun(), serving.service.works(),
                     std::chrono::steady_clock::now()))
      return_memory();
  }
  log::info("serve.ending", {{"connections", serving.http.connections()},
                             {"seconds", serving.drain_timeout.count()}});
  serving.forced_end.arm(serving.drain_timeout + end_time);
  serving.service.shut_down();
  const auto end = std::chrono::steady_clock::now() + serving.drain_timeout;
  // On this thread, because no other may be available when memory has run out.
  for (bool cut = false; !serving.http.drain(look_up);) {
    if (cut || std::chrono::steady_clock::now() < end) continue;
    cut = true;
    log::warning("serve.cutting_off",
                 {{"connections", serving.http.connections()}, {"why", "--drain-timeout is over"}});
    serving.engine.shutdown(engine::Engine::Drain::cancel);
    serving.http.stop();
  }
  return {};
}

std::function<Result<std::optional<engine::AdapterSpec>>(const std::string&)> finder_of(
    const std::optional<AdapterDir>& dir) {
  if (!dir) return {};
  return [dir = *dir](const std::string& name) { return dir.find(name); };
}

// What GET /server_info says: by what the bits of answers are decided, first of all.
server::ServerInfo info_of(const Settings& settings, const serving::ServedEngines& engines) {
  const serving::ComputeSettings& compute = settings.model.engine.compute;
  const model::Model& model = engines.stack().model();
  const tensor::Device& device = engines.stack().device();
  // Of a CPU its instructions alone: the number of threads changes no bit.
  const bool on_cpu = device.id().kind == tensor::DeviceKind::cpu;
  std::string where = device.description();
  if (const std::size_t at = where.find(", ", where.find(", ") + 2); on_cpu && at != where.npos)
    where = cat("CPU", where.substr(at));
  const auto yes = [](bool is_so) { return std::string(is_so ? "true" : "false"); };
  const std::string type(name(model.activations()) == name(DType::bf16) ? "bfloat16" : "float32");
  return {.compute = type,
          .logprobs_mode = settings.processed_logprobs ? "processed_logprobs" : "raw_logprobs",
          .max_adapter_rank = on_cpu ? 512 : 256,
          .max_adapters = settings.model.engine.max_adapters,
          .ranks = compute.ranks,
          .replicas = compute.replicas,
          .arithmetic = {{"version", std::string(motley::version())},
                         {"device", where},
                         {"compute", type},
                         {"batch_invariant", yes(compute.batch_invariant)},
                         {"exact_activations", yes(compute.exact_inputs)},
                         {"fusion", yes(compute.fusion)},
                         {"ranks", cat(compute.ranks)},
                         {"expert_groups", cat(compute.expert_groups)},
                         {"experts", model.describe_backends()},
                         {"keys_and_values", std::string(name(model.kv_type()))},
                         {"adapters", compute.factors ? std::string(name(*compute.factors)) : type},
                         {"tuning", compute.tuning ? "file" : "built in"}}};
}

// The HTTP server and the watches must outlive the service.
server::Service::Options service_options(const Settings& settings, serving::ServedEngines& engines,
                                         const server::HttpServer& http,
                                         const MappedFilesWatch& files, Watchdog* watchdog,
                                         engine::AdapterChecker* checker) {
  return {.planner = {.base = settings.model.name,
                      .aliases = settings.model.aliases,
                      .vocabulary = engines.config().vocabulary,
                      .prompts = {.max_sequence_tokens = engines.engine().max_sequence_tokens(),
                                  .keeps_states = engines.engine().keeps_states(),
                                  .special_in_untrusted = settings.model.special_in_untrusted,
                                  .processed_logprobs = settings.processed_logprobs,
                                  .forms = settings.forms},
                      .max_logprobs = settings.model.engine.max_logprobs,
                      .strict_fields = settings.strict_fields,
                      .request_templates = settings.request_templates,
                      .routed_experts = engines.engine().routed_experts(),
                      .private_prefixes = settings.private_prefixes},
          .keys = settings.keys,
          .admin_keys = settings.admin_keys,
          .origins = {.allowed = settings.cors_origins,
                      .check_host = !settings.keys.required() && http.is_loopback(),
                      .host = settings.http.host},
          .http_stats = [&http] { return http.stats(); },
          .watchdog = watchdog,
          .adapter_loading = settings.adapter_loading,
          .model = &engines.stack().model().base_view(),
          .adapter_root = settings.adapter_root,
          .push_memory = settings.pushes,
          .default_adapter = settings.default_adapter,
          .info = info_of(settings, engines),
          .adapter_loaded =
              [checker](const std::string& adapter) {
                if (checker != nullptr) checker->add(adapter);
              },
          .find_adapter = finder_of(settings.model.adapter_dir),
          .adapter_dir = settings.model.adapter_dir ? settings.model.adapter_dir->folder()
                                                    : std::filesystem::path(),
          .health = [&files] { return files.health(); },
          .request_memory_bytes = settings.request_memory};
}

// Checks that each adapter changes the model's answers, now and whenever one is loaded.
void start_check(const text::ModelText& text, engine::Engine& engine,
                 std::optional<engine::AdapterChecker>& checker) {
  auto tokens = check_prompt(text.tokenizer());
  const std::int64_t longest = engine.max_sequence_tokens();
  if (tokens.ok() && std::ssize(*tokens) > longest)
    tokens->resize(static_cast<std::size_t>(longest));
  if (!tokens.ok() || tokens->size() < 2)
    return log::info("adapter.checks_off", {{"reason", "no prompt of two tokens can be made"}});
  checker.emplace(engine, *std::move(tokens));
  // Others would be brought to memory, in the place of adapters that are there.
  for (const engine::AdapterInfo& each : engine.adapters())
    if (each.on_device) checker->add(each.name);
}

// Settings that are right on one's own machine, and may surprise where others can connect.
void warn_of_openness(const Settings& settings, const server::HttpServer& http) {
  if (!settings.keys.required() && !http.is_loopback())
    log::warning("serve.open_to_network",
                 {{"host", settings.http.host},
                  {"effect", "every machine that can connect may use the server"},
                  {"advice", "give --api-key-file or --keys, or listen on 127.0.0.1"}});
  if (settings.adapter_loading || settings.admin_keys.required())
    log::info("serve.pushes", {{"limit_bytes", settings.pushes.max_bytes},
                               {"folder", settings.pushes.folder.native()}});
  if ((settings.adapter_loading || settings.admin_keys.required()) && !settings.adapter_root)
    log::warning("serve.adapters_from_anywhere",
                 {{"advice", "give --adapter-root where clients are not yourself"}});
}

Result<void> run_serve(const Arguments& arguments, Output output) {
  MOTLEY_TRY(Settings settings, read_settings(arguments));
  prepare_memory_return();
  // Sent by mistake or by other tools; the default of each is to end the process.
  for (const int signal : {SIGUSR1, SIGUSR2, SIGALRM}) std::signal(signal, SIG_IGN);
  const HeldSignals signals(HeldSignals::Hangup::asks);
  MOTLEY_TRY(settings.model.engine.compute,
             serving::choose_devices(std::move(settings.model.engine.compute)));
  const log::Background background;
  ForcedEnd forced_end(signals);
  MemoryReserve reserve;
  raise_file_limit();
  const SteadyClock clock;
  const TimePoint start = clock.now();
  serving::StartLog parts(clock);
  const MappedFilesWatch watch;
  MOTLEY_TRY(const text::ModelText text, load_text(settings.model));
  parts.done("tokenizer and templates");
  MOTLEY_TRY(const auto listener, server::EarlyListener::open(settings.http));
  server::HttpServer& http = listener->http();
  std::atomic<bool> hangup = false;
  InputEnd stdin_end(STDIN_FILENO);
  InputEnd* const input = settings.ends_with_stdin ? &stdin_end : nullptr;
  std::optional<EndsWhileLoading> loading(std::in_place, signals, input, hangup);
  std::optional<Watchdog> watchdog;
  if (settings.watchdog.count() > 0) watchdog.emplace(settings.watchdog, &clock);
  Watchdog* const watching = watchdog ? &*watchdog : nullptr;
  auto loaded = serving::ServedEngines::load(settings.model.engine,
                                             source_of_folder(settings.model, text, watching));
  loading.reset();
  if (!loaded.ok()) {
    http.stop();
    return std::move(loaded).error();
  }
  const std::unique_ptr<serving::ServedEngines> engines = *std::move(loaded);
  std::optional<engine::AdapterChecker> checker;
  if (settings.adapter_check) start_check(text, engines->engine(), checker);
  server::Service service(
      text, engines->engine(),
      service_options(settings, *engines, http, watch, watching, checker ? &*checker : nullptr));
  listener->attach(service);
  warn_of_openness(settings, http);
  log_forms(service.chat_format(), text);
  log::info("start.ready", {{"seconds", seconds(clock.now() - start)}});
  announce(output, settings, http.port());

  const Serving serving{.signals = signals,
                        .input = input,
                        .forced_end = forced_end,
                        .key_files = settings.key_files,
                        .engine = engines->engine(),
                        .service = service,
                        .http = http,
                        .drain_timeout = settings.drain_timeout,
                        .reserve = reserve};
  if (hangup) read_keys_again(serving);
  const Result<void> ended = serve_until_ended(serving);
  forced_end.arm(end_time);
  // No handler may run when the service is destroyed, and no sink may exist when the listener is.
  engines->engine().shutdown(engine::Engine::Drain::cancel);
  http.stop();
  return ended;
}

}  // namespace

Command serve_command() {
  std::vector<OptionSpec> options = {
      {"--host", "ADDRESS", "where to listen (127.0.0.1)"},
      {"--port", "N", "where to listen; 0 lets the system choose (8000)"},
      {"--listen", "unix:PATH",
       "listens on this Unix socket; on the network only where --host or --port is given, too"},
      {"--client-timeout", "SECONDS", "for a request to come, and for an answer to be taken (30)"},
      {"--drain-timeout", "SECONDS", "for running answers to end at shutdown (25)"},
      {"--end-with-stdin", "",
       "ends the server when its standard input ends: with the program that holds the other end"},
      {"--watchdog", "SECONDS",
       "that a step or a load may take before it counts as stuck; 0: any (60)"},
      {"--max-connections", "N", "open at once; half of them from one address (4096)"},
      {"--cors-origin", "ORIGIN",
       "a server whose web pages may use this one, or * for all; without it only our own page may",
       true},
      {"--trusted-proxies", "CIDR[,CIDR]",
       "addresses of proxies, whose X-Forwarded-For names the client and X-Forwarded-Host the "
       "server; unix: all that connect to the Unix socket",
       true},
      {"--private-prefixes", "", "shares cached prompts within one client's requests alone"},
      {"--request-memory", "SIZE",
       "for what all requests hold at once, prompts and answers (2G, at most a quarter of memory)"},
      {"--max-logprobs", "N",
       "alternatives to a token that requests may ask for: of an answer's at most 20, of a "
       "prompt's at most 1024; -1: as many (20)"},
      {"--logprobs-mode", "MODE",
       "raw_logprobs: the model's own; processed_logprobs: of the distribution that is drawn from "
       "(raw_logprobs)"},
      {"--enable-return-routed-experts", "",
       "answers have the experts that each token went through, for trainers that replay the "
       "router; "
       "prompts of such requests are not found in the prefix cache"},
      {"--strict-fields", "", "refuses requests with fields that are not known"},
      {"--allow-request-templates", "", "takes chat_template of a request"},
      {"--tool-form", "NAME",
       "how the model writes calls of tools (default: as its template shows)"},
      {"--reasoning-form", "NAME", "how it marks its reasoning (default: as its template shows)"},
      {"--allow-adapter-loading", "",
       "lets clients load and unload adapters, pause the server and reset its cache"},
      {"--admin-key-file", "F",
       "a file of keys, one a line; with it these requests need one of them, and no other key"},
      {"--default-adapter", "NAME|pushed",
       "requests that name the base get this adapter; pushed: one that is loaded under the base's "
       "id, as soon as there is one"},
      {"--adapter-dir", "DIR",
       "serves the adapters in this folder by their folders' names; a new one is loaded when a "
       "request names it"},
      {"--any-base", "", "serves adapters in --adapter-dir that were trained on another base"},
      {"--no-adapter-check", "",
       "does not try each loaded adapter on a short prompt, to warn of one that changes nothing"},
      {"--adapter-root", "DIR", "the folder that those must lie in"},
      {"--push-memory", "SIZE",
       "for the files of adapters that clients push (a quarter of memory)"},
      {"--push-dir", "DIR",
       "holds those files on this folder's disk, without names, and not in memory"},
      {"--api-key-file", "F", "a file of keys, one a line; requests need one of them"},
      {"--keys", "F",
       "the same in JSON, with a name, a weight and the adapters of each key; see the guide"},
      {"--config", "FILE", "YAML or JSON of these options; the command line wins"}};
  options.push_back(template_option_spec());
  const std::vector<OptionSpec> model = model_option_specs();
  options.insert(options.end(), model.begin(), model.end());
  return {
      .spec = {.name = "serve",
               .summary = "an HTTP server that speaks OpenAI's protocol",
               .positionals = {"MODEL"},
               .options = std::move(options),
               .examples = {"motley serve models/demo --adapter cynic=models/demo/adapters/cynic",
                            ("motley serve models/demo --allow-adapter-loading --adapter-root "
                             "models/demo/adapters --port 0"),
                            "motley serve Qwen/Qwen3-30B-A3B --adapter poet=acme/poet-lora@v2",
                            "motley serve models/demo --dp 2",
                            ("motley serve models/demo --enable-lora --lora-modules "
                             "cynic=models/demo/adapters/cynic --served-model-name demo fable"),
                            "motley serve models/demo --host 0.0.0.0 --api-key-file keys.txt"},
               .others = OthersOptions::all},
      .run = run_serve};
}

}  // namespace motley::cli
