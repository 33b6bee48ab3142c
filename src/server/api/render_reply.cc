#include "server/api/render_reply.h"

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "base/cat.h"
#include "base/json/json.h"

namespace motley::server {
namespace {

constexpr std::array<std::string_view, 6> body_fields = {
    "adapters", "cache_salt", "priority", "stream", "stream_options", "return_token_ids"};
constexpr std::array<std::string_view, 7> sampling_fields = {
    "structured_outputs", "response_format", "guided_json", "guided_regex",
    "guided_grammar",     "guided_choice",   "bad_words"};

std::string members_of(const json::Object& body, std::span<const std::string_view> names) {
  std::string members;
  for (const std::string_view name : names) {
    if (const json::Value* const value = body.find_set(name))
      members += cat(",\"", name, "\":", json::write(*value));
  }
  return members;
}

// Writes the members of an object.
class Members {
 public:
  explicit Members(std::string& text) : text_(text) {}

  void add(std::string_view name, std::string_view json) { text_ += cat(",\"", name, "\":", json); }
  void add(std::string_view name, std::int64_t number) { add(name, std::to_string(number)); }
  // Unless it is neutral.
  void add(std::string_view name, float number, float neutral) {
    if (number == neutral) return;
    std::string written;
    json::append_number(written, number);
    add(name, written);
  }
  void add(std::string_view name, std::int64_t number, std::int64_t neutral) {
    if (number != neutral) add(name, number);
  }
  void add(std::string_view name, bool value, bool neutral) {
    if (value != neutral) add(name, value ? "true" : "false");
  }
  void add(std::string_view name, const std::vector<std::int32_t>& ids) {
    if (!ids.empty()) add(name, id_list(ids));
  }

 private:
  std::string& text_;
};

void add_draws(Members& members, const engine::SamplingParams& sampling) {
  members.add("temperature", sampling.temperature, 1.0F);
  members.add("top_p", sampling.top_p, 1.0F);
  members.add("top_k", sampling.top_k, std::int64_t{0});
  members.add("min_p", sampling.min_p, 0.0F);
  members.add("repetition_penalty", sampling.repetition_penalty, 1.0F);
  members.add("frequency_penalty", sampling.frequency_penalty, 0.0F);
  members.add("presence_penalty", sampling.presence_penalty, 0.0F);
  if (sampling.seed) members.add("seed", static_cast<std::int64_t>(*sampling.seed));
  members.add("min_tokens", sampling.min_tokens, std::int64_t{0});
  members.add("ignore_eos", sampling.ignore_eos, false);
  members.add("allowed_token_ids", sampling.allowed_tokens);
  if (sampling.logit_bias.empty()) return;
  std::string biases;
  for (const engine::LogitBias& bias : sampling.logit_bias) {
    biases += cat(biases.empty() ? "{" : ",", "\"", bias.token, "\":");
    json::append_number(biases, bias.bias);
  }
  members.add("logit_bias", biases += '}');
}

void add_ends(Members& members, const serving::TextRules& rules, const engine::Request& request) {
  if (!rules.stop.empty()) {
    json::Array stops;
    for (const std::string& stop : rules.stop) stops.emplace_back(stop);
    members.add("stop", json::write(stops));
  }
  members.add("stop_token_ids", request.stop_ids);
  members.add("include_stop_str_in_output", rules.include_stop, false);
  members.add("skip_special_tokens", rules.skip_special, true);
  members.add("spaces_between_special_tokens", rules.spaces_between_special, true);
}

void add_scores(Members& members, const engine::Request& request) {
  const engine::SamplingParams& sampling = request.sampling;
  members.add("logprob_token_ids", sampling.logprob_tokens);
  // With named tokens it is their number.
  if (sampling.logprobs)
    members.add("logprobs", static_cast<std::int64_t>(sampling.alternatives()));
  if (!request.prompt_logprobs) return;
  const engine::NamedTokens& named = request.prompt_named;
  const auto width = static_cast<std::size_t>(named.width);
  if (width == 0 || request.prompt_top > 0) members.add("prompt_logprobs", request.prompt_top);
  members.add("prompt_logprob_start", request.prompt_first - 1, std::int64_t{0});
  if (width == 0) return;
  std::string lists;
  for (std::size_t first = 0; first < named.ids.size(); first += width)
    lists += cat(lists.empty() ? "[" : ",", id_list(std::span(named.ids).subspan(first, width)));
  members.add("prompt_logprob_token_ids", lists += ']');
}

}  // namespace

std::string members_for_body(const json::Object& body) { return members_of(body, body_fields); }

std::string members_for_sampling(const json::Object& body) {
  return members_of(body, sampling_fields);
}

std::string RenderReply::opening() const {
  const bool several = plan_.generation.requests.size() > 1;
  const std::string id = several ? cat(plan_.id, "-", prompt_) : plan_.id;
  return cat(plan_.list ? (prompt_ == 0 ? "[" : ",") : "",
             "{\"request_id\":", json::string_literal(id), ",\"token_ids\":");
}

std::string RenderReply::closing() const {
  const GenerationPlan& plan = plan_.generation;
  const engine::Request& request = plan.requests[prompt_];
  std::string text = cat(",\"features\":null,\"model\":", json::string_literal(plan.model),
                         plan_.body_members, ",\"sampling_params\":{");
  text += cat("\"max_tokens\":", request.max_tokens, plan_.sampling_members);
  Members members(text);
  members.add("n", request.choices, std::int64_t{1});
  add_draws(members, request.sampling);
  add_ends(members, plan.rules, request);
  add_scores(members, request);
  if (request.routed_experts_from)
    members.add("routed_experts_prompt_start", *request.routed_experts_from, std::int64_t{0});
  text += "}}";
  if (plan_.list && prompt_ + 1 == plan.requests.size()) text += ']';
  return text;
}

std::string RenderReply::next_piece() {
  std::string piece;
  const std::vector<engine::Request>& requests = plan_.generation.requests;
  while (prompt_ < requests.size() && piece.size() < Reply::piece_bytes) {
    const std::vector<std::int32_t>& ids = requests[prompt_].tokens;
    if (!std::exchange(begun_, true)) piece += opening();
    if (!write_list(piece, place_, ids.size(),
                    [&](std::string& text, std::size_t at) { text += std::to_string(ids[at]); }))
      return piece;
    piece += closing();
    begun_ = false;
    ++prompt_;
  }
  return piece;
}

}  // namespace motley::server
