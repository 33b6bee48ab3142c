// Routes about the server's models, and about the tokenizer.

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "base/cat.h"
#include "base/version.h"
#include "server/api/adapter_state.h"
#include "server/api/api_error.h"
#include "server/api/messages/error.h"
#include "server/api/render_reply.h"
#include "server/api/suggestions.h"
#include "server/api/tokenize_reply.h"
#include "server/service.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;

// Fields with paths on the server, which no answer shows.
constexpr std::array<std::string_view, 5> path_fields = {
    "name_or_path", "vocab_file", "merges_file", "tokenizer_file", "special_tokens_map_file"};

// The contents of tokenizer_config.json, its added tokens included, and the template in use.
json::Object tokenizer_object(const text::TokenizerConfig& config) {
  json::Object object;
  for (const auto& [key, value] : config.file.members()) {
    if (key == "chat_template" || std::ranges::find(path_fields, key) != path_fields.end())
      continue;
    object.add(key, value);
  }
  for (const auto& [name, token] : config.special_tokens)
    if (!object.contains(name)) object.add(name, token);
  if (!object.contains("tokenizer_class")) object.add("tokenizer_class", "PreTrainedTokenizerFast");
  if (const auto source = config.template_for(false); source.ok())
    object.add("chat_template", (*source)->source);
  return object;
}

std::string last_part(const std::string& path) {
  const std::filesystem::path whole = std::filesystem::path(path).lexically_normal();
  return whole.has_filename() ? whole.filename().string() : whole.parent_path().filename().string();
}

void add_adapter(json::Object& object, const engine::AdapterInfo& adapter) {
  object.add("version", adapter.version);
  object.add("state", state_of(adapter));
  object.add("level", adapter.on_device ? "gpu" : adapter.in_host ? "cpu" : "disk");
  object.add("pinned", adapter.pinned);
  object.add("rank", adapter.rank);
  json::Array modules;
  for (const std::string_view module : adapter.modules) modules.emplace_back(module);
  object.add("modules", std::move(modules));
  object.add("bytes", static_cast<std::int64_t>(adapter.bytes));
}

}  // namespace

json::Object Service::model_object(std::string_view id, const engine::AdapterInfo* adapter) const {
  const std::string& base = options_.planner.base;
  json::Object object{
      {"id", id}, {"object", "model"}, {"created", started_}, {"owned_by", "motley"}};
  // Of an adapter's path only the last part is shown.
  const auto root_of = [](const engine::AdapterInfo& of) {
    return of.path.empty() ? of.name : last_part(of.path);
  };
  object.add("root", adapter == nullptr ? base : root_of(*adapter));
  object.add("parent", adapter == nullptr ? json::Value() : json::Value(base));
  object.add("max_model_len", options_.planner.prompts.max_sequence_tokens);
  if (adapter != nullptr) add_adapter(object, *adapter);
  return object;
}

asio::awaitable<void> Service::list_models(Exchange& exchange) {
  json::Array list{model_object(options_.planner.base, nullptr)};
  for (const std::string& alias : options_.planner.aliases)
    list.emplace_back(model_object(alias, nullptr));
  // One that has the base's name is what the base's card stands for.
  for (const engine::AdapterInfo& each : adapters_for(exchange.request()))
    if (each.name != options_.planner.base) list.emplace_back(model_object(each.name, &each));
  json::Object body{{"object", "list"}, {"data", std::move(list)}};
  co_await exchange.send(json_response(json::write(body)));
}

asio::awaitable<void> Service::one_model(Exchange& exchange) {
  const std::string& asked = exchange.request().parameter;
  const std::string& base = options_.planner.base;
  const std::string id = without_alias(asked, base, options_.planner.aliases);
  auto adapter = engine_.adapter(asked);
  if (!adapter) adapter = engine_.adapter(adapter_part(id, base));
  if (adapter && !exchange.request().may_use(adapter->name)) adapter.reset();
  if (id == base)
    co_await exchange.send(json_response(json::write(model_object(asked, nullptr))));
  else if (adapter)
    co_await exchange.send(json_response(json::write(model_object(adapter->name, &*adapter))));
  else
    co_await exchange.send(
        error_response(unknown_model(asked, base, adapters_for(exchange.request()))));
}

asio::awaitable<void> Service::version(Exchange& exchange) {
  json::Object body{{"version", motley::version()}};
  co_await exchange.send(json_response(json::write(body)));
}

asio::awaitable<void> Service::tokenizer_info(Exchange& exchange) {
  co_await exchange.send(json_response(json::write(tokenizer_object(text_.config()))));
}

Result<void> Service::check_loaded(const HttpHead& head, const std::string& model,
                                   const std::vector<lora::ScaledAdapter>& adapters) const {
  for (const lora::ScaledAdapter& each : adapters)
    if (!engine_.adapter(each.name))
      return unknown_model(model, options_.planner.base, adapters_for(head));
  return {};
}

asio::awaitable<Result<TokenizePlan>> Service::tokens(Exchange& exchange,
                                                      Planning<TokenizePlan> planning,
                                                      MemoryBudget::Share& share) {
  auto planned = co_await plan(exchange, planning);
  exchange.drop_body();
  if (!planned.ok()) co_return planned;
  Result<void> brought = co_await bring_adapters(exchange, planned->adapters);
  if (!brought.ok()) co_return std::move(brought).error();
  Result<void> known = check_loaded(exchange.request(), planned->model, planned->adapters);
  if (!known.ok()) co_return std::move(known).error();
  const std::size_t bytes = sizeof(TokenizePlan) + planned->ids.capacity() * sizeof(std::int32_t);
  if (share.grow(bytes) != MemoryBudget::Refusal::none)
    co_return Error(ErrorCode::busy, "the memory for requests is used up", "", "try again later");
  say(planned->notices, exchange);
  co_return planned;
}

asio::awaitable<void> Service::count_tokens(Exchange& exchange) {
  MemoryBudget::Share share(budget_, exchange.request().client());
  const auto counted = co_await tokens(exchange, &GenerationPlanner::count_tokens, share);
  if (!counted.ok()) {
    co_await exchange.send(messages_error(counted.error(), exchange.request().id));
    co_return;
  }
  co_await exchange.send(json_response(cat("{\"input_tokens\":", counted->ids.size(), "}")));
}

asio::awaitable<void> Service::tokenize(Exchange& exchange) {
  MemoryBudget::Share share(budget_, exchange.request().client());
  auto plan = co_await tokens(exchange, &GenerationPlanner::tokenize, share);
  if (!plan.ok()) {
    co_await exchange.send(error_response(plan.error()));
    co_return;
  }
  const auto reply = std::make_shared<TokenizeReply>(
      *std::move(plan), options_.planner.prompts.max_sequence_tokens, text_.tokenizer());
  PieceSource next = [reply] { return reply->next_piece(); };
  co_await exchange.send_pieces(json_response({}), std::move(next));
}

asio::awaitable<void> Service::detokenize(Exchange& exchange) {
  MemoryBudget::Share share(budget_, exchange.request().client());
  auto plan = co_await tokens(exchange, &GenerationPlanner::detokenize, share);
  if (!plan.ok()) {
    co_await exchange.send(error_response(plan.error()));
    co_return;
  }
  const auto reply = std::make_shared<DetokenizeReply>(*std::move(plan), text_.tokenizer());
  PieceSource next = [reply] { return reply->next_piece(); };
  co_await exchange.send_pieces(json_response({}), std::move(next));
}

asio::awaitable<Result<RenderPlan>> Service::render_plan(Exchange& exchange,
                                                         Planning<RenderPlan> planning,
                                                         MemoryBudget::Share& share) {
  auto planned = co_await plan(exchange, planning);
  exchange.drop_body();
  if (!planned.ok()) co_return planned;
  const GenerationPlan& generation = planned->generation;
  Result<void> charged = charge(generation, exchange.request(), share);
  if (!charged.ok()) co_return std::move(charged).error();
  const std::vector<lora::ScaledAdapter>& adapters = generation.requests.front().adapters;
  Result<void> brought = co_await bring_adapters(exchange, adapters);
  if (!brought.ok()) co_return std::move(brought).error();
  Result<void> known = check_loaded(exchange.request(), generation.model, adapters);
  if (!known.ok()) co_return std::move(known).error();
  say(generation.notices, exchange);
  co_return planned;
}

asio::awaitable<void> Service::render(Exchange& exchange, Planning<RenderPlan> planning) {
  MemoryBudget::Share share(budget_, exchange.request().client());
  auto plan = co_await render_plan(exchange, planning, share);
  if (!plan.ok()) {
    co_await exchange.send(error_response(plan.error()));
    co_return;
  }
  const auto reply = std::make_shared<RenderReply>(*std::move(plan));
  PieceSource next = [reply] { return reply->next_piece(); };
  co_await exchange.send_pieces(json_response({}), std::move(next));
}

asio::awaitable<void> Service::render_chat(Exchange& exchange) {
  return render(exchange, &GenerationPlanner::render_chat);
}

asio::awaitable<void> Service::render_completion(Exchange& exchange) {
  return render(exchange, &GenerationPlanner::render_completion);
}

}  // namespace motley::server
