#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/system/watchdog.h"
#include "engine/engine.h"
#include "server/adapter_loads.h"
#include "server/adapter_pushes.h"
#include "server/api/api_keys.h"
#include "server/api/fields/notices.h"
#include "server/api/generation_plan.h"
#include "server/art_routes.h"
#include "server/fair_workers.h"
#include "server/http/connections/http_stats.h"
#include "server/http/limits/memory_budget.h"
#include "server/http/messages/exchange.h"
#include "server/metrics/holder_counts.h"
#include "server/metrics/metrics.h"
#include "server/requests_under_way.h"
#include "server/routes/request_admission.h"
#include "server/routes/route_table.h"
#include "server/shared_loads.h"
#include "server/trainer_routes.h"
#include "serving/memory_plan.h"

namespace motley::server {

// Answers the requests of the server: what is answered where is in service_routes.cc.
class Service : public RouteHandlers {
 public:
  struct Options {
    GenerationPlanner::Options planner;
    ApiKeys keys = {};
    ApiKeys admin_keys = {};  // if there are some, the server is changed with these alone
    OriginPolicy::Options origins = {};
    std::function<HttpStats()> http_stats = {};  // empty: not shown
    Watchdog* watchdog = nullptr;                // must outlive the service
    bool adapter_loading = false;
    // What pushed adapters are for; must outlive the service. Null: pushes are checked where they
    // are loaded.
    const lora::BaseView* model = nullptr;
    std::optional<std::filesystem::path> adapter_root = {};
    PushMemory::Options push_memory = {};
    // The adapter of requests that name the base. pushed_default: the one that is loaded under the
    // base's id, once there is one.
    static constexpr std::string_view pushed_default = "pushed";
    std::string default_adapter = {};
    ServerInfo info = {};
    int workers = 2;  // threads that parse, render and tokenise
    // Called with the name of each adapter that was loaded for a client; may be empty.
    std::function<void(const std::string&)> adapter_loaded = {};
    // An adapter that requests name and that is not loaded, in the folder adapter_dir: nothing if
    // there is none, and an error if it cannot be loaded. Reads files. Empty: only adapters that
    // are loaded are served.
    std::function<Result<std::optional<engine::AdapterSpec>>(const std::string&)> find_adapter = {};
    std::filesystem::path adapter_dir = {};
    // Health of what is neither the engine's nor the service's; may be empty.
    std::function<Result<void>()> health = {};
    // The memory of all requests together; see request_charge.h.
    std::size_t request_memory_bytes = serving::max_request_memory;
  };

  // Text and engine must outlive the service.
  Service(const text::ModelText& text, engine::Engine& engine, Options options);

  // The format of answers with the model's own template.
  const serving::ChatFormat& chat_format() const { return planner_.format(); }

  // Thread-safe: decides by a request's header, first by its key.
  HeadVerdict admit(const HttpHead& head);
  // Answers a request that admit() has accepted.
  boost::asio::awaitable<void> answer(Exchange& exchange);
  // The answer to an invalid request.
  HttpResponse refuse(const Error& error, const HttpHead& head);

  // The error format for clients of a path, whether the route exists or not.
  static ErrorWriter error_writer(std::string_view path);

  // Whether a request only asks if the process lives, which has an answer before the model is
  // loaded; and that answer.
  static bool asks_for_life(const HttpHead& head);
  static HttpResponse live_response();

  // Thread-safe: later requests need one of these keys. Whether any is needed stays as it was.
  void set_keys(ApiKeys keys) { admission_.set_keys(std::move(keys)); }
  void set_admin_keys(ApiKeys keys) { admission_.set_admin_keys(std::move(keys)); }

  // Thread-safe: later requests get 503, and pauses end.
  void shut_down();

  // Generation requests: the number that have begun, and whether any is being answered.
  std::uint64_t requests_begun() const { return begun_; }
  bool works() const { return answering_ > 0; }

 private:
  static const RouteTable& routes();
  // trainer<&TrainerRoutes::pause> is that member function.
  template <auto member>
  static boost::asio::awaitable<void> trainer(RouteHandlers& handlers, Exchange& exchange) {
    return (static_cast<Service&>(handlers).trainers_.*member)(exchange);
  }

  template <auto member>
  static boost::asio::awaitable<void> art(RouteHandlers& handlers, Exchange& exchange) {
    return (static_cast<Service&>(handlers).art_.*member)(exchange);
  }

  using Answer = boost::asio::awaitable<void>;
  Answer dispatch(Exchange& exchange, const Route& route);
  Answer playground(Exchange& exchange);
  Answer health(Exchange& exchange);
  Answer live(Exchange& exchange);
  Answer ping(Exchange& exchange);
  Answer metrics(Exchange& exchange);
  Answer list_models(Exchange& exchange);
  Answer one_model(Exchange& exchange);
  Answer version(Exchange& exchange);
  Answer tokenizer_info(Exchange& exchange);
  Answer tokenize(Exchange& exchange);
  Answer detokenize(Exchange& exchange);
  Answer completions(Exchange& exchange);
  Answer chat_completions(Exchange& exchange);
  Answer responses(Exchange& exchange);
  Answer messages(Exchange& exchange);
  Answer generate_tokens(Exchange& exchange);
  Answer render_chat(Exchange& exchange);
  Answer render_completion(Exchange& exchange);
  Answer count_tokens(Exchange& exchange);
  Answer load_adapter(Exchange& exchange);
  Answer unload_adapter(Exchange& exchange);
  Answer list_adapters(Exchange& exchange);
  Answer put_adapter(Exchange& exchange);
  Answer get_adapter(Exchange& exchange);
  Answer delete_adapter(Exchange& exchange);

  boost::asio::awaitable<Result<void>> decode(Exchange& exchange);
  Result<void> check_health() const;
  json::Object model_object(std::string_view id, const engine::AdapterInfo* adapter) const;
  // Those that the request's key may use.
  std::vector<engine::AdapterInfo> adapters_for(const HttpHead& head) const;
  Result<void> check_adapters(const HttpHead& head,
                              std::span<const lora::ScaledAdapter> adapters) const;
  template <class Plan>
  using Planning = Result<Plan> (GenerationPlanner::*)(const json::Value&, const Asked&) const;
  Answer generate(Exchange& exchange, Planning<GenerationPlan> planning);
  boost::asio::awaitable<engine::Usage> answer_generation(Exchange& exchange,
                                                          Planning<GenerationPlan> planning);
  template <class Plan>
  boost::asio::awaitable<Result<Plan>> plan(Exchange& exchange, Planning<Plan> planning);
  boost::asio::awaitable<Result<TokenizePlan>> tokens(Exchange& exchange,
                                                      Planning<TokenizePlan> planning,
                                                      MemoryBudget::Share& share);
  Answer render(Exchange& exchange, Planning<RenderPlan> planning);
  boost::asio::awaitable<Result<RenderPlan>> render_plan(Exchange& exchange,
                                                         Planning<RenderPlan> planning,
                                                         MemoryBudget::Share& share);
  // An error about one that is not loaded.
  Result<void> check_loaded(const HttpHead& head, const std::string& model,
                            const std::vector<lora::ScaledAdapter>& adapters) const;
  // Loads those that are not loaded and that find_adapter finds.
  boost::asio::awaitable<Result<void>> bring_adapters(
      Exchange& exchange, const std::vector<lora::ScaledAdapter>& adapters);
  void say(const serving::Notices& notices, Exchange& exchange);
  Result<void> charge(const GenerationPlan& plan, const HttpHead& head, MemoryBudget::Share& share);

  const text::ModelText& text_;
  engine::Engine& engine_;
  Options options_;
  RequestAdmission admission_;
  MemoryBudget budget_;
  GenerationPlanner planner_;
  std::int64_t started_;  // seconds since the epoch
  HttpCounts counts_;
  HolderCounts holder_counts_;
  std::atomic<std::uint64_t> begun_{0};
  std::atomic<std::int64_t> answering_{0};
  SharedLoads shared_loads_;
  FairWorkers workers_;
  AdapterLoads loads_;
  RequestsUnderWay under_way_;
  TrainerRoutes trainers_;
  ArtRoutes art_;
  AdapterPushes pushes_;
  IgnoredFieldsLog ignored_;
};

}  // namespace motley::server
