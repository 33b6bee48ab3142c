#include "server/adapter_loads.h"

#include <algorithm>
#include <atomic>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/cat.h"
#include "base/system/files.h"
#include "engine/adapter_log.h"
#include "server/api/adapter_request.h"
#include "server/api/api_error.h"
#include "server/api/request_body.h"
#include "server/async/outcome_of.h"
#include "server/on_workers.h"
#include "serving/prompts/path_redaction.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;

// Whether the error is about the name, rather than about the files at the path.
bool is_about_name(ErrorCode code) {
  return code == ErrorCode::invalid_argument || code == ErrorCode::busy;
}

// The file that a folder must have and has not, as far as that can be seen.
std::string_view missing_file(const std::filesystem::path& folder) {
  const auto kind = path_kind(folder);
  if (!kind.ok() || *kind != PathKind::folder) return {};
  const auto names = list_folder(folder);
  if (!names.ok()) return {};
  const auto has = [&](auto is_it) { return std::ranges::any_of(*names, is_it); };
  if (!has([](std::string_view name) { return name == "adapter_config.json"; }))
    return "adapter_config.json";
  const bool has_weights = has([](std::string_view name) {
    return name.starts_with("adapter_model") && name.ends_with(".safetensors");
  });
  return has_weights ? "" : "adapter_model.safetensors";
}

}  // namespace

Result<void> check_adapter_name(const HttpHead& head, std::string_view name) {
  if (head.may_use(name)) return {};
  return Error(ErrorCode::forbidden, cat("this key has no right to ", quote(name)), "lora_name",
               "choose a name that the key may use");
}

struct AdapterLoads::Wanted {
  LoadAdapterRequest request;
  std::filesystem::path sent;  // as the client wrote it
  std::string_view missing;    // a file that was not there before the load
};

Result<AdapterLoads::Wanted> AdapterLoads::find(const HttpRequest& request,
                                                LoadAdapterRequest asked) const {
  Wanted wanted{.request = std::move(asked), .sent = {}, .missing = {}};
  engine::AdapterSpec& spec = wanted.request.spec;
  MOTLEY_TRY_VOID(check_adapter_name(request, spec.name));
  if (std::ranges::find(options_.base_names, spec.name) != options_.base_names.end())
    return Error(ErrorCode::invalid_argument, "the base model has that name", "lora_name",
                 "choose another");
  wanted.sent = spec.path;
  MOTLEY_TRY_VOID(place_adapter(spec, options_.root));
  wanted.missing = missing_file(spec.path);
  return wanted;
}

Error AdapterLoads::refused(const Wanted& wanted, const Error& error) const {
  const engine::AdapterSpec& spec = wanted.request.spec;
  // Trainers load what they have just written, and try again where it is not found.
  const bool is_of_files = error.code() == ErrorCode::bad_file || error.code() == ErrorCode::io;
  if (!wanted.missing.empty() && is_of_files)
    return {ErrorCode::not_found, cat("no ", wanted.missing, " in ", quote(wanted.sent.string())),
            "lora_path", "load the adapter when its folder is whole"};
  // Clients of vLLM look for these words.
  if (error.code() == ErrorCode::invalid_argument && !wanted.request.replace &&
      engine_.adapter(spec.name))
    return {ErrorCode::invalid_argument,
            cat("The lora adapter ", quote(spec.name),
                " has already been loaded. If you want to load the adapter in place, set "
                "'load_inplace' to True"),
            "lora_name"};
  return at_field(serving::without_server_paths(error, spec.path, wanted.sent),
                  is_about_name(error.code()) ? "lora_name" : "lora_path");
}

asio::awaitable<Result<std::string>> AdapterLoads::load(Exchange& exchange, Taken taken) {
  std::atomic<bool> gone = false;
  const auto read = [&]() -> Result<LoadAdapterRequest> {
    MOTLEY_TRY(const json::Value body, parse_body(exchange.request()));
    MOTLEY_TRY(LoadAdapterRequest request, read_load_adapter_request(body));
    if (taken == Taken::replaced) request.replace = true;
    return request;
  };
  Result<LoadAdapterRequest> request = co_await on_workers(workers_, exchange, gone, read);
  if (!request.ok()) co_return request.error();
  co_return co_await load(exchange, *std::move(request));
}

asio::awaitable<Result<std::string>> AdapterLoads::load(Exchange& exchange,
                                                        LoadAdapterRequest asked) {
  // The file system may take time.
  std::atomic<bool> gone = false;
  const auto work = [&] { return find(exchange.request(), std::move(asked)); };
  const Result<Wanted> wanted = co_await on_workers(workers_, exchange, gone, work);
  if (!wanted.ok()) co_return wanted.error();
  const LoadAdapterRequest& request = wanted->request;
  const Result<void> loaded =
      co_await outcome_of(exchange.executor(), [&](const engine::Engine::Done& done) {
        loads_.load_explicitly(request.spec, request.replace, done);
      });
  if (!loaded.ok()) co_return refused(*wanted, loaded.error());
  co_return request.spec.name;
}

asio::awaitable<Result<std::string>> AdapterLoads::unload(Exchange& exchange) {
  std::atomic<bool> gone = false;
  const auto read = [&]() -> Result<std::string> {
    MOTLEY_TRY(const json::Value body, parse_body(exchange.request()));
    MOTLEY_TRY(std::string name, read_unload_adapter_request(body));
    MOTLEY_TRY_VOID(check_adapter_name(exchange.request(), name));
    return name;
  };
  const Result<std::string> name = co_await on_workers(workers_, exchange, gone, read);
  if (!name.ok()) co_return name.error();
  const Result<void> unloaded = co_await unload_named(exchange, *name);
  if (!unloaded.ok()) co_return at_field(unloaded.error(), "lora_name");
  co_return *name;
}

asio::awaitable<Result<void>> AdapterLoads::unload_named(Exchange& exchange, std::string name) {
  // Its requests stand still until /resume, for which the caller could not ask while it waits.
  const engine::Request one{.adapters = {{name, 1}}};
  if (engine_.adapter(name) && engine_.paused().keeps(one)) {
    engine::unload_and_log(engine_, name, [](const Result<void>&) {});
    // It has begun, and no request finds the name, when a second one learns that there is no such
    // adapter: engines take calls in their order.
    std::ignore = co_await outcome_of(exchange.executor(), [&](engine::Engine::Done done) {
      engine_.unload_adapter(name, std::move(done));
    });
    co_return Result<void>();
  }
  co_return co_await outcome_of(exchange.executor(), [&](engine::Engine::Done done) {
    engine::unload_and_log(engine_, name, std::move(done));
  });
}

}  // namespace motley::server
