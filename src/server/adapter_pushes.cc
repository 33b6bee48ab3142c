#include "server/adapter_pushes.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "base/cat.h"
#include "base/log.h"
#include "base/system/clock.h"
#include "engine/adapter_name.h"
#include "engine/residency/residency.h"
#include "lora/files/load.h"
#include "server/api/adapter_request.h"
#include "server/api/api_error.h"
#include "server/api/request_body.h"
#include "server/async/outcome_of.h"
#include "server/on_workers.h"
#include "serving/prompts/path_redaction.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;

// A part of a body without a length is counted before it comes.
constexpr std::uint64_t counted_bytes = 1 << 20;
// What messages call the body.
constexpr std::string_view body_name = "body";

// The body as text, of which there is little.
asio::awaitable<Result<json::Value>> read_json(Exchange& exchange) {
  std::string body;
  while (true) {
    const Result<std::string_view> piece = co_await exchange.next_body_piece();
    if (!piece.ok()) co_return piece.error();
    if (piece->empty()) break;
    if (body.size() + piece->size() > max_adapter_request_bytes)
      co_return Error(ErrorCode::too_long, "a body that names a path and is this long", "",
                      cat("send at most ", max_adapter_request_bytes, " bytes"));
    body += *piece;
  }
  co_return parse_body_text(body);
}

// Whether the error is about the adapter's files.
bool is_about_files(const Error& error) {
  return error.code() == ErrorCode::bad_file || error.code() == ErrorCode::unsupported ||
         error.code() == ErrorCode::not_found || error.code() == ErrorCode::invalid_argument;
}

std::string_view field_of(const Error& error, bool has_path) {
  if (error.code() == ErrorCode::conflict) return "expected_version";
  return has_path ? "path" : "body";
}

}  // namespace

// Where the time of a push goes.
struct AdapterPushes::Times {
  TimePoint begin = std::chrono::steady_clock::now();
  TimePoint received = begin;  // the body
  TimePoint held = begin;      // checked, hashed

  void log(const engine::AdapterSpec& spec) const {
    const TimePoint end = std::chrono::steady_clock::now();
    log::info("adapter.pushed", {{"adapter", spec.name},
                                 {"bytes", spec.content->bytes()},
                                 {"receive_seconds", seconds(received - begin)},
                                 {"check_seconds", seconds(held - received)},
                                 {"load_seconds", seconds(end - held)}});
  }
};

// A body on its way.
struct AdapterPushes::Incoming {
  std::uint64_t announced = 0;  // bytes; 0: not known
  PushMemory::Share share;
  UnnamedFile file;
  std::uint64_t data_begin = 0;  // where the header ends; 0: not known
  std::optional<tensor::SafetensorsHeader> header = {};

  Result<void> take(std::string_view piece) {
    const std::uint64_t size = file.size() + piece.size();
    if (size > share.bytes() && !share.grow(counted_bytes).ok())
      MOTLEY_TRY_VOID(share.grow(size - share.bytes()));
    MOTLEY_TRY_VOID(file.write(piece));
    if (announced == 0 || data_begin > 0) return {};
    if (size < std::min<std::uint64_t>(tensor::first_bytes, announced)) return {};
    MOTLEY_TRY(const std::string first, file.beginning(tensor::first_bytes));
    MOTLEY_TRY(data_begin, tensor::data_begin(first, announced, body_name));
    return {};
  }
  // Whether the header of a body whose length is known has just come.
  bool shows_header() const { return data_begin > 0 && !header && file.size() >= data_begin; }
};

AdapterPushes::AdapterPushes(const Collaborators& collaborators, Options options)
    : with_(collaborators), options_(std::move(options)), memory_(options_.memory) {}

std::string AdapterPushes::metrics() const {
  const PushMemory::Figures held = memory_.figures();
  return push_metrics(
      counts_,
      {.used_bytes = held.used_bytes, .limit_bytes = held.limit_bytes, .contents = held.contents});
}

Result<void> AdapterPushes::check_name(const HttpHead& head, const std::string& name) const {
  if (!engine::is_adapter_name(name))
    return Error(ErrorCode::invalid_argument, cat("not an adapter's name: ", quote(name)), "name",
                 cat("use ", engine::adapter_name_rule));
  if (!head.may_use(name))
    return Error(ErrorCode::forbidden, cat("this key has no right to ", quote(name)), "name",
                 "choose a name that the key may use");
  if (std::ranges::find(options_.base_names, name) != options_.base_names.end())
    return Error(ErrorCode::invalid_argument, "the base model has that name", "name",
                 "choose another");
  return {};
}

Result<void> AdapterPushes::check_before_body(const engine::AdapterSpec& spec) const {
  if (spec.expected_version) {
    const auto present = with_.engine->adapter(spec.name);
    const std::string version = present ? present->version : std::string();
    if (version != *spec.expected_version)
      return at_field(engine::version_conflict(spec.name, version), "expected_version");
  }
  const engine::Stats stats = with_.engine->stats();
  if (stats.adapter_pages_replaced > stats.adapter_pages / old_versions_part)
    return Error(ErrorCode::busy,
                 cat("requests still use old versions that take ", stats.adapter_pages_replaced,
                     " of the ", stats.adapter_pages, " pages of --adapter-memory"),
                 "", "try again when some of them have ended, or start the server with more");
  return {};
}

asio::awaitable<Result<PushRequest>> AdapterPushes::read_request(Exchange& exchange) {
  const HttpRequest& head = exchange.request();
  Result<void> named = check_name(head, head.parameter);
  if (!named.ok()) co_return std::move(named).error();
  if (!is_json(head.content_type)) co_return read_push_query(head.query);
  if (head.content_length.value_or(0) > max_adapter_request_bytes)
    co_return Error(ErrorCode::too_long, "a body that names a path and is this long", "",
                    cat("send at most ", max_adapter_request_bytes, " bytes"));
  const Result<json::Value> body = co_await read_json(exchange);
  if (!body.ok()) co_return body.error();
  co_return read_push_body(*body);
}

asio::awaitable<HttpResponse> AdapterPushes::push(Exchange& exchange) {
  Result<PushRequest> request = co_await read_request(exchange);
  if (!request.ok()) {
    HttpResponse refusal = adapter_error(request.error(), {});
    counts_.count(refusal.status);
    co_return refusal;
  }
  request->spec.name = exchange.request().parameter;
  std::optional<PushOperations::Operation> operation;
  if (!request->operation_id.empty()) {
    PushOperations::Operation begun =
        co_await operations_.begin(exchange.executor(), request->spec.name, request->operation_id);
    operation.emplace(std::move(begun));
  }
  if (operation && operation->answer() != nullptr) {
    counts_.count(PushCounts::Outcome::repeated);
    co_return *operation->answer();
  }
  const Result<std::string> pushed = co_await push_new(exchange, *std::move(request));
  HttpResponse answer = pushed.ok() ? json_response(*pushed) : adapter_error(pushed.error(), {});
  counts_.count(answer.status);
  if (operation) operation->end(answer);
  co_return answer;
}

asio::awaitable<Result<std::string>> AdapterPushes::push_new(Exchange& exchange,
                                                             PushRequest request) {
  engine::AdapterSpec& spec = request.spec;
  Result<void> may = check_before_body(spec);
  if (!may.ok()) co_return std::move(may).error();
  const std::filesystem::path sent = spec.path;
  Times times;
  // Two statements: g++ 12 destroys what a ?: with co_await gives twice.
  Result<Content> content = Content();
  if (sent.empty())
    content = co_await receive(exchange, spec, times);
  else
    content = co_await copy(exchange, spec);
  const auto refused = [&](const Error& error) {
    const Error shown =
        sent.empty() ? error : serving::without_server_paths(error, spec.path, sent);
    return is_about_files(error) || error.code() == ErrorCode::conflict
               ? at_field(shown, field_of(error, !sent.empty()))
               : shown;
  };
  if (!content.ok()) co_return refused(content.error());
  times.held = std::chrono::steady_clock::now();
  spec.content = *std::move(content);
  content = Content();
  const NameTurns::Turn turn = co_await turns_.take(exchange.executor(), spec.name);
  const std::string name = spec.name;
  const std::string checksum = spec.content->checksum();
  const Result<void> loaded = co_await outcome_of(
      exchange.executor(),
      [&](const engine::Engine::Done& done) { with_.loads->load_explicitly(spec, true, done); });
  if (!loaded.ok()) co_return refused(loaded.error());
  times.log(spec);
  const auto adapter = with_.engine->adapter(name);
  if (adapter && adapter->checksum == checksum) co_return adapter_body(*adapter);
  co_return Error(ErrorCode::busy, "it was replaced or unloaded at once",
                  cat("adapter ", quote(name)), "look at the present version");
}

asio::awaitable<Result<void>> AdapterPushes::check_beginning(Exchange& exchange, Incoming& incoming,
                                                             const lora::LoadOptions& load) {
  std::atomic<bool> gone = false;
  const auto check = [&]() -> Result<void> {
    MOTLEY_TRY(const std::string text, incoming.file.beginning(incoming.data_begin));
    MOTLEY_TRY(incoming.header, tensor::parse_beginning(text, incoming.announced, body_name));
    MOTLEY_TRY_VOID(lora::AdapterContent::check_header(*incoming.header, body_name));
    if (with_.base == nullptr) return {};
    return lora::check_header(*incoming.header, lora::AdapterContent::config_of(*incoming.header),
                              load, *with_.base);
  };
  co_return co_await on_workers(*with_.workers, exchange, gone, check);
}

// The client's bytes go to where they are held as they come.
asio::awaitable<Result<void>> AdapterPushes::read_body(Exchange& exchange, Incoming& incoming,
                                                       const lora::LoadOptions& load) {
  while (true) {
    const Result<std::string_view> piece = co_await exchange.next_body_piece();
    if (!piece.ok()) co_return piece.error();
    if (piece->empty()) co_return Result<void>();
    Result<void> taken = incoming.take(*piece);
    if (!taken.ok()) co_return taken;
    counts_.add_bytes(piece->size());
    // The header is checked before the rest comes.
    if (!incoming.shows_header()) continue;
    taken = co_await check_beginning(exchange, incoming, load);
    if (!taken.ok()) co_return taken;
  }
}

asio::awaitable<Result<AdapterPushes::Content>> AdapterPushes::receive(
    Exchange& exchange, const engine::AdapterSpec& spec, Times& times) {
  PushMemory::Share share(memory_);
  const std::uint64_t announced = exchange.request().content_length.value_or(0);
  Result<void> taken = share.grow(announced);
  if (!taken.ok()) co_return std::move(taken).error();
  Result<UnnamedFile> file = memory_.new_file();
  if (!file.ok()) co_return file.error();
  taken = file->reserve(announced);
  if (!taken.ok()) co_return std::move(taken).error();
  Incoming incoming{.announced = announced, .share = std::move(share), .file = *std::move(file)};
  taken = co_await read_body(exchange, incoming, spec.load);
  if (!taken.ok()) co_return std::move(taken).error();
  times.received = std::chrono::steady_clock::now();
  incoming.share.shrink_to(incoming.file.size());
  std::atomic<bool> gone = false;
  const auto make = [&]() -> Result<Content> {
    MOTLEY_TRY(MappedFile body, std::move(incoming.file).map(body_name));
    MOTLEY_TRY(auto content, lora::AdapterContent::of(std::move(body), cat("pushed ", spec.name),
                                                      std::move(incoming.header)));
    return memory_.keep(std::move(content), std::move(incoming.share));
  };
  co_return co_await on_workers(*with_.workers, exchange, gone, make);
}

asio::awaitable<Result<AdapterPushes::Content>> AdapterPushes::copy(Exchange& exchange,
                                                                    engine::AdapterSpec& spec) {
  std::atomic<bool> gone = false;
  const auto make = [&]() -> Result<Content> {
    MOTLEY_TRY_VOID(place_adapter(spec, options_.root));
    PushMemory::Share share(memory_);
    lora::AdapterContent::Copying copying{.take = [&](std::uint64_t bytes) -> Result<void> {
      MOTLEY_TRY_VOID(share.grow(bytes));
      counts_.add_bytes(bytes);
      return {};
    }};
    copying.rules.beneath = std::exchange(spec.load.beneath, {});
    copying.rules.copies_in = options_.memory.folder;
    MOTLEY_TRY(auto content, lora::AdapterContent::copy_of(spec.path, spec.path.string(), copying));
    return memory_.keep(std::move(content), std::move(share));
  };
  co_return co_await on_workers(*with_.workers, exchange, gone, make);
}

}  // namespace motley::server
