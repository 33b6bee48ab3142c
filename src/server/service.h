#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>

#include "server/api/api_keys.h"
#include "server/api/generation_plan.h"
#include "server/backend.h"
#include "server/http/exchange.h"
#include "server/metrics.h"

namespace motley::server {

// The routes: what each request means, and its answer.
class Service {
 public:
  struct Options {
    GenerationPlanner::Options planner;
    ApiKeys keys = {};
    bool adapter_loading = false;
    std::optional<std::filesystem::path> adapter_root = {};
    int workers = 2;  // threads that parse, render and tokenise
  };

  // Text and backend must outlive the service.
  Service(const text::ModelText& text, Backend& backend, Options options);

  boost::asio::awaitable<void> answer(Exchange& exchange);
  // The answer to what never became a request.
  HttpResponse refuse(const Error& error);

  // From any thread: whoever asks for work from now on gets 503.
  void shut_down() { shutting_down_ = true; }

 private:
  struct Route;
  static std::span<const Route> routes();

  using Answer = boost::asio::awaitable<void>;
  Answer dispatch(Exchange& exchange, std::string_view& route_name);
  Answer playground(Exchange& exchange);
  Answer health(Exchange& exchange);
  Answer metrics(Exchange& exchange);
  Answer list_models(Exchange& exchange);
  Answer one_model(Exchange& exchange);
  Answer completions(Exchange& exchange);
  Answer chat_completions(Exchange& exchange);
  Answer load_adapter(Exchange& exchange);
  Answer unload_adapter(Exchange& exchange);

  std::optional<Error> refusal(const Route& route, const HttpRequest& request) const;
  std::optional<Error> adapter_refusal(const HttpRequest& request) const;
  json::Object model_object(std::string_view id, const engine::AdapterInfo* adapter) const;
  using Planning = Result<GenerationPlan> (GenerationPlanner::*)(const json::Value&) const;
  Answer generate(Exchange& exchange, Planning planning);

  const text::ModelText& text_;
  Backend& backend_;
  Options options_;
  GenerationPlanner planner_;
  std::int64_t started_;  // seconds of the epoch
  HttpCounts counts_;
  std::atomic<bool> shutting_down_{false};
  boost::asio::thread_pool workers_;
};

}  // namespace motley::server
