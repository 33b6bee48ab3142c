#include "cli/bench/load/url_target.h"

#include <algorithm>
#include <future>
#include <thread>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include "base/json/json.h"
#include "cli/client/api_client.h"
#include "cli/client/event_reader.h"

namespace motley::cli {
namespace {

namespace asio = boost::asio;

struct Models {
  std::string base;
  std::vector<std::string> adapters;
};

Result<Models> read_models(std::string_view body, const std::optional<std::string>& base) {
  const Error strange(ErrorCode::bad_file, "its list of models is none", "GET /v1/models",
                      "check that the URL is that of an OpenAI-compatible server");
  const auto value = json::parse(body, "GET /v1/models");
  const json::Object* const object = value.ok() ? value->if_object() : nullptr;
  const json::Value* const data = object == nullptr ? nullptr : object->find("data");
  if (data == nullptr || data->if_array() == nullptr) return strange;
  Models models{.base = base.value_or("")};
  std::vector<std::pair<std::string, std::string>> with_parent;
  for (const json::Value& entry : *data->if_array()) {
    const json::Object* const model = entry.if_object();
    const json::Value* const id = model == nullptr ? nullptr : model->find("id");
    if (id == nullptr || id->if_string() == nullptr) return strange;
    const json::Value* const parent = model->find_set("parent");
    if (parent != nullptr && parent->if_string() != nullptr) {
      with_parent.emplace_back(*id->if_string(), *parent->if_string());
    } else if (models.base.empty()) {
      models.base = *id->if_string();
    }
  }
  if (models.base.empty()) return strange;
  for (auto& [id, parent] : with_parent) {
    if (parent == models.base) models.adapters.push_back(std::move(id));
  }
  return models;
}

bool has_text(const json::Object& event) {
  const json::Value* const choices = event.find("choices");
  if (choices == nullptr || choices->if_array() == nullptr) return false;
  return std::ranges::any_of(*choices->if_array(), [](const json::Value& choice) {
    const json::Object* const object = choice.if_object();
    const json::Value* const text = object == nullptr ? nullptr : object->find("text");
    return text != nullptr && text->if_string() != nullptr && !text->if_string()->empty();
  });
}

}  // namespace

// Runs its requests on a separate thread.
class UrlTarget::Client {
 public:
  explicit Client(const Options& options)
      : options_(options),
        work_(context_.get_executor()),
        api_(options.url, options.key),
        thread_([this] { context_.run(); }) {}
  ~Client() {
    work_.reset();
    context_.stop();
    thread_.join();
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  Result<void> ask_for_models() {
    std::promise<Result<std::string>> answer;
    asio::co_spawn(
        context_,
        [&]() -> asio::awaitable<void> { answer.set_value(co_await api_.get("/v1/models")); },
        asio::detached);
    MOTLEY_TRY(const std::string body, answer.get_future().get());
    MOTLEY_TRY(models_, read_models(body, options_.model));
    return {};
  }

  void send(const PlannedRequest& request, FlightObserver& observer) {
    asio::co_spawn(context_, complete(completion(request), observer), asio::detached);
  }

  const Models& models() const { return models_; }
  std::int64_t vocabulary() const { return options_.vocabulary; }

 private:
  std::string completion(const PlannedRequest& wanted) const {
    json::Array prompt;
    prompt.reserve(wanted.tokens.size());
    for (const std::int32_t token : wanted.tokens) prompt.emplace_back(token);
    json::Object usage;
    usage.add("include_usage", true);
    json::Object body;
    body.add("model", wanted.adapter ? models_.adapters[*wanted.adapter] : models_.base);
    body.add("prompt", std::move(prompt));
    body.add("max_tokens", wanted.max_tokens);
    body.add("temperature", 0);
    body.add("ignore_eos", true);
    body.add("stream", true);
    body.add("stream_options", std::move(usage));
    return json::write(std::move(body));
  }

  asio::awaitable<void> complete(std::string body, FlightObserver& observer) {
    EventReader events([&](const json::Object& event) {
      if (has_text(event)) observer.token();
    });
    ApiClient::Take take = [&](std::string_view piece) { return events.read(piece); };
    const Result<void> read =
        co_await api_.post("/v1/completions", std::move(body), std::move(take));
    if (!read.ok()) {
      observer.ended(read.error());
    } else if (!events.done()) {
      observer.ended(Error(ErrorCode::io, "the stream ends without [DONE]", options_.url.shown(),
                           "see the server's log"));
    } else {
      observer.ended({}, events.tokens());
    }
  }

  Options options_;
  Models models_;
  asio::io_context context_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  ApiClient api_;
  std::thread thread_;  // last: it uses all of the above
};

UrlTarget::UrlTarget(std::unique_ptr<Client> client) : client_(std::move(client)) {}
UrlTarget::~UrlTarget() = default;

Result<std::unique_ptr<UrlTarget>> UrlTarget::open(const Options& options) {
  auto client = std::make_unique<Client>(options);
  MOTLEY_TRY_VOID(client->ask_for_models());
  return std::unique_ptr<UrlTarget>(new UrlTarget(std::move(client)));
}

const std::string& UrlTarget::base() const { return client_->models().base; }
std::size_t UrlTarget::adapters() const { return client_->models().adapters.size(); }
std::int64_t UrlTarget::vocabulary() const { return client_->vocabulary(); }

void UrlTarget::send(PlannedRequest request, FlightObserver& observer) {
  client_->send(request, observer);
}

}  // namespace motley::cli
