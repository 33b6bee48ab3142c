// motley ask: one prompt to a running server's base and adapters at once, with the answers side by
// side.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/system/clock.h"
#include "cli/ask/side_by_side.h"
#include "cli/client/api_client.h"
#include "cli/client/event_reader.h"
#include "cli/client/metrics_page.h"
#include "cli/command.h"
#include "cli/options/settings/model_settings.h"
#include "cli/signals.h"

namespace motley::cli {
namespace {

namespace asio = boost::asio;

constexpr auto frame_time = std::chrono::milliseconds(40);
constexpr std::size_t max_voices = 64;

struct Settings {
  net::ServerUrl server;
  std::string prompt;
  std::vector<std::string> voices;  // none: all
  std::int64_t max_tokens = 0;
  std::optional<std::int64_t> seed;
  std::optional<double> temperature;
  bool plain = false;
};

Result<Settings> read_settings(const Arguments& arguments) {
  Settings settings;
  MOTLEY_TRY(settings.server, net::ServerUrl::parse(arguments.positional(0)));
  settings.prompt = arguments.positional(1);
  const auto voices = arguments.values("--to");
  settings.voices.assign(voices.begin(), voices.end());
  MOTLEY_TRY(settings.max_tokens, integer_option(arguments, "--max-tokens", 1, 1'000'000, 128));
  if (arguments.has("--seed")) {
    MOTLEY_TRY(settings.seed, integer_option(arguments, "--seed", 0, INT64_MAX, 0));
  }
  if (const std::string* const text = arguments.value("--temperature")) {
    const auto value = json::parse(*text, "--temperature");
    const auto number =
        value.ok() ? value->as_number("--temperature") : Result<double>(value.error());
    if (!number.ok())
      return Error(ErrorCode::invalid_argument, cat("no number ", quote(*text)), "--temperature",
                   "0 takes the likeliest token each time");
    settings.temperature = *number;
  }
  settings.plain = arguments.has("--plain") || ::isatty(STDOUT_FILENO) != 1;
  return settings;
}

// The ids that the server lists, its base first.
Result<std::vector<std::string>> ids_of(std::string_view body) {
  MOTLEY_TRY(const json::Value page, json::parse(body, "/v1/models"));
  MOTLEY_TRY(const json::Object* const object, page.as_object("/v1/models"));
  const json::Value* const data = object->find("data");
  if (data == nullptr)
    return Error(ErrorCode::io, "no list of models", "/v1/models", "check the URL");
  MOTLEY_TRY(const json::Array* const entries, data->as_array("/v1/models, data"));
  std::vector<std::string> ids;
  for (const json::Value& entry : *entries) {
    MOTLEY_TRY(const json::Object* const fields, entry.as_object("/v1/models, data"));
    const json::Value* const id = fields->find("id");
    if (id == nullptr || id->if_string() == nullptr) continue;
    const json::Value* const parent = fields->find_set("parent");
    ids.insert(parent == nullptr ? ids.begin() : ids.end(), *id->if_string());
  }
  return ids;
}

std::string request_of(const Settings& settings, const std::string& id) {
  json::Object message;
  message.add("role", "user");
  message.add("content", settings.prompt);
  json::Object usage;
  usage.add("include_usage", true);
  json::Object request;
  request.add("model", id);
  request.add("messages", json::Array{json::Value(std::move(message))});
  request.add("max_tokens", settings.max_tokens);
  if (settings.seed) request.add("seed", *settings.seed);
  if (settings.temperature) request.add("temperature", *settings.temperature);
  request.add("stream", true);
  request.add("stream_options", std::move(usage));
  return json::write(request);
}

const json::Object* object_at(const json::Object& object, std::string_view key) {
  const json::Value* const value = object.find(key);
  return value == nullptr ? nullptr : value->if_object();
}

void append_string_at(std::string& text, const json::Object& object, std::string_view key) {
  const json::Value* const value = object.find(key);
  if (value != nullptr && value->if_string() != nullptr) text += *value->if_string();
}

// Handles a chunk of a streamed chat: a piece of the text, or its end.
void hear_chunk(Voice& voice, const json::Object& chunk) {
  const json::Value* const choices = chunk.find("choices");
  const json::Array* const list = choices == nullptr ? nullptr : choices->if_array();
  if (list == nullptr || list->empty()) return;
  const json::Object* const choice = list->front().if_object();
  if (choice == nullptr) return;
  if (const json::Object* const delta = object_at(*choice, "delta")) {
    const std::size_t before = voice.text.size();
    append_string_at(voice.text, *delta, "reasoning_content");
    append_string_at(voice.text, *delta, "content");
    // Estimates tokens until the end gives their number: a piece is usually one token, or a few
    // within a character.
    if (voice.text.size() > before) ++voice.tokens;
  }
  std::string reason;
  append_string_at(reason, *choice, "finish_reason");
  voice.cut_off |= reason == "length";
}

asio::awaitable<void> listen(ApiClient& server, std::string request, Voice& voice) {
  EventReader events([&](const json::Object& chunk) { hear_chunk(voice, chunk); });
  ApiClient::Take take = [&](std::string_view piece) { return events.read(piece); };
  const Result<void> read =
      co_await server.post("/v1/chat/completions", std::move(request), std::move(take));
  voice.tokens = events.tokens().value_or(voice.tokens);
  if (!read.ok()) {
    voice.failed = true;
    voice.text += cat(voice.text.empty() ? "" : "\n", read.error().message());
  }
  voice.ended = true;
}

// What the server's metrics show of the work.
class Watch {
 public:
  explicit Watch(ApiClient& server) : server_(server) {}

  // Polls the server's batch size during the answers. Servers without metrics are supported.
  asio::awaitable<void> look() {
    if (std::exchange(looking_, true)) co_return;
    const Result<std::string> page = co_await server_.get("/metrics");
    looking_ = false;
    if (page.ok()) take(*page);
  }

  std::string summary() const {
    if (!first_steps_ || steps_ <= *first_steps_) return {};
    std::string text =
        cat(static_cast<std::int64_t>(steps_ - *first_steps_), " steps of the model");
    if (max_running_ == 0) return text;
    std::string names = names_;
    for (std::size_t at = 0; (at = names.find(',', at)) != std::string::npos; at += 2)
      names.replace(at, 1, ", ");
    return cat(text, "; one batch held ", static_cast<std::int64_t>(max_running_), " sequences",
               names.empty() ? "" : cat(", with the adapters ", printable(names)));
  }

 private:
  void take(std::string_view page) {
    const double running = metric(page, "motley_sequences_running").value_or(0);
    if (!first_steps_) first_steps_ = metric(page, "motley_steps_total");
    steps_ = metric(page, "motley_steps_total").value_or(0);
    const std::string_view names =
        metric_label(page, "vllm:lora_requests_info", "running_lora_adapters");
    if (running < max_running_ || (running == max_running_ && names.size() <= names_.size()))
      return;
    max_running_ = running;
    names_ = names;
  }

  ApiClient& server_;
  bool looking_ = false;
  std::optional<double> first_steps_;
  double steps_ = 0;
  double max_running_ = 0;
  std::string names_;
};

// On a terminal, answers grow in place; elsewhere each is printed when it is complete.
class Screen {
 public:
  Screen(Output output, bool plain, const std::vector<Voice>& voices)
      : output_(output), plain_(plain), voices_(voices), printed_(voices.size(), false) {
    if (!plain_) show("\x1b[?25l");  // no cursor
  }
  ~Screen() {
    if (!plain_) show("\x1b[?25h");
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void draw(bool last) {
    if (plain_) return print_ended(last);
    winsize size{};
    const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    // The last column stays free, because some terminals wrap there.
    Canvas canvas{.width = known ? std::max<std::size_t>(size.ws_col, 2) - 1 : 79,
                  .height = known ? std::max<std::size_t>(size.ws_row, 4) - 2 : 22};
    if (last) canvas.height.reset();
    std::string frame = above_ > 0 ? cat("\x1b[", above_, "A\r") : "\r";
    const std::vector<std::string> lines = side_by_side(voices_, canvas);
    for (const std::string& line : lines) frame += cat(line, "\x1b[K\n");
    above_ = lines.size();
    show(cat(frame, "\x1b[J"));
  }

  void show(std::string_view text) {
    output_(text);
    std::fflush(stdout);
  }
  void say_dim(std::string_view text) {
    if (text.empty()) return;
    show(plain_ ? cat(text, "\n") : cat("\x1b[2m", text, "\x1b[0m\n"));
  }

 private:
  void print_ended(bool last) {
    for (std::size_t i = 0; i < voices_.size(); ++i) {
      if (printed_[i] || (!voices_[i].ended && !last)) continue;
      printed_[i] = true;
      std::string text = cat(voices_[i].name, ":\n");
      for (const std::string& line : wrapped(voices_[i].text, 100)) text += cat("  ", line, "\n");
      if (voices_[i].cut_off) text += "  ...\n";
      show(text + "\n");
    }
  }

  Output output_;
  bool plain_;
  const std::vector<Voice>& voices_;
  std::vector<bool> printed_;  // without a terminal
  std::size_t above_ = 0;      // lines of the last frame
};

// Runs until the coroutine has ended.
void run_to_end(asio::io_context& context, asio::awaitable<void> work) {
  asio::co_spawn(context, std::move(work), asio::detached);
  context.restart();
  context.run();
}

asio::awaitable<void> get_page(ApiClient& server, std::string path, Result<std::string>& page) {
  page = co_await server.get(std::move(path));
}

std::string totals(const std::vector<Voice>& voices, double time) {
  std::int64_t tokens = 0;
  for (const Voice& voice : voices) tokens += voice.tokens;
  const auto tenths = std::lround(time * 10);
  return cat(voices.size(), voices.size() == 1 ? " answer, " : " answers, ", tokens, " tokens in ",
             tenths / 10, ".", tenths % 10,
             " s: ", static_cast<std::int64_t>(static_cast<double>(tokens) / std::max(time, 1e-3)),
             " tokens a second");
}

Result<void> run_ask(const Arguments& arguments, Output output) {
  MOTLEY_TRY(Settings settings, read_settings(arguments));
  const HeldSignals signals;
  asio::io_context context{1};
  ApiClient server(settings.server);
  std::vector<std::string> ids = settings.voices;
  if (ids.empty()) {
    Result<std::string> page = std::string();
    run_to_end(context, get_page(server, "/v1/models", page));
    MOTLEY_TRY(const std::string body, std::move(page));
    MOTLEY_TRY(ids, ids_of(body));
    if (ids.size() > max_voices)
      return Error(ErrorCode::too_long, cat("the server has ", ids.size(), " voices"), "",
                   cat("choose at most ", max_voices, " with --to"));
  }
  Watch watch(server);
  run_to_end(context, watch.look());

  const SteadyClock clock;
  const TimePoint start = clock.now();
  std::vector<Voice> voices;
  for (const std::string& id : ids) voices.push_back({.name = printable(id)});
  context.restart();
  for (std::size_t i = 0; i < ids.size(); ++i)
    asio::co_spawn(context, listen(server, request_of(settings, ids[i]), voices[i]),
                   asio::detached);
  Screen screen(output, settings.plain, voices);
  while (!std::ranges::all_of(voices, &Voice::ended)) {
    context.run_for(frame_time);
    if (signals.wait(std::chrono::milliseconds(0))) {
      screen.draw(true);
      return Error(ErrorCode::cancelled, "interrupted", "", "ask again");
    }
    screen.draw(false);
    asio::co_spawn(context, watch.look(), asio::detached);
    context.restart();
  }
  const double time = seconds(clock.now() - start);
  run_to_end(context, watch.look());
  screen.draw(true);
  screen.say_dim(cat(settings.plain ? "" : "\n", totals(voices, time)));
  screen.say_dim(watch.summary());
  if (std::ranges::none_of(voices, &Voice::failed)) return {};
  return Error(ErrorCode::unavailable, "not all models answered", "",
               "see what stands in the answers' places");
}

}  // namespace

Command ask_command() {
  return {
      .spec = {.name = "ask",
               .summary = "asks a running server's base and adapters at once, side by side",
               .positionals = {"URL", "PROMPT"},
               .options = {{"--to", "ID", "who answers; again for more (base and adapters)", true},
                           {"--max-tokens", "N", "of an answer (128)"},
                           {"--temperature", "X", "0 is greedy (as the model says)"},
                           {"--seed", "N", "the same answers again"},
                           {"--plain", "", "answers one behind the other, as without a terminal"}},
               .examples = {"motley ask http://127.0.0.1:8000 money",
                            "motley ask http://127.0.0.1:8000 money --to demo --to cynic --seed 1",
                            "motley ask unix:/run/motley/socket money"}},
      .run = run_ask,
      .logs = false};
}

}  // namespace motley::cli
