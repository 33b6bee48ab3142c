// Any bytes as the body of a completion, a chat, a response, a message and a prompt of ids: they
// are refused with a message of one line, or mean something within the engine's ranges.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/cat.h"
#include "base/check.h"
#include "base/json/json.h"
#include "engine/adapter_name.h"
#include "server/api/adapter_request.h"
#include "server/api/chat/chat_completion_request.h"
#include "server/api/completions/completion_request.h"
#include "server/api/fields/notices.h"
#include "server/api/messages/request.h"
#include "server/api/request_charge.h"
#include "server/api/responses/request.h"
#include "server/api/tokens/generate_request.h"
#include "serving/prompts/open_message.h"

namespace json = motley::json;
namespace server = motley::server;
namespace serving = motley::serving;
namespace text = motley::text;

namespace {

constexpr std::int64_t vocabulary = 5;
constexpr std::string_view tokenizer_file =
    R"({"added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
        "decoder": null, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3, "x": 4},
        "merges": ["a b"]}})";

const text::Tokenizer& tokenizer() {
  static const text::Tokenizer one = text::Tokenizer::parse(tokenizer_file, "fixed").value();
  return one;
}

// Of a server that keeps the experts of tokens; of every third input's, one that does not.
motley::engine::RoutedExpertsSizes routed_sizes(std::size_t size) {
  if (size % 3 == 0) return {};
  return {.layers = 4, .top_k = 2, .experts = size % 3 == 1 ? 8 : 300};
}

void check(const motley::Error& error) {
  const std::string message = error.message();
  MOTLEY_CHECK(!message.empty() && message == motley::printable(message), "one printable line");
  MOTLEY_CHECK(motley::http_status(error.code()) < 500, "the client is at fault");
}

void check(const server::GenerationFields& fields) {
  const motley::engine::SamplingParams& params = fields.sampling;
  MOTLEY_CHECK(params.temperature >= 0 && params.temperature <= 10'000, "a temperature in range");
  MOTLEY_CHECK(params.top_p > 0 && params.top_p <= 1, "a share above nothing");
  MOTLEY_CHECK(params.min_p >= 0 && params.min_p <= 1, "a share");
  MOTLEY_CHECK(params.top_k >= 0 && params.top_k <= vocabulary, "a number of tokens");
  MOTLEY_CHECK(params.repetition_penalty > 0, "a factor");
  MOTLEY_CHECK(fields.choices >= 1 && fields.choices <= motley::engine::max_choices, "choices");
  MOTLEY_CHECK(!fields.max_tokens || *fields.max_tokens >= 0, "a number of tokens");
  for (const auto& bias : params.logit_bias)
    MOTLEY_CHECK(bias.token >= 0 && bias.token < vocabulary, "a bias of a token");
  for (const std::int32_t id : params.allowed_tokens)
    MOTLEY_CHECK(id >= 0 && id < vocabulary, "an allowed token");
  for (const auto& banned : params.banned)
    MOTLEY_CHECK(!banned.empty(), "a sequence that some text has");
  MOTLEY_CHECK(!fields.truncate || *fields.truncate != 0, "a prompt that keeps something");
  MOTLEY_CHECK(fields.request_id == motley::printable(fields.request_id), "an id of one line");
  MOTLEY_CHECK(server::charge_for(fields, {}).memory_bytes > 0, "a charge");
  const motley::engine::NamedTokens& named = fields.prompt_named;
  MOTLEY_CHECK(named.width >= 0 && named.width <= motley::engine::max_named_tokens, "named tokens");
  MOTLEY_CHECK(named.width == 0 ? named.ids.empty()
                                : named.ids.size() % static_cast<std::size_t>(named.width) == 0,
               "as many in each place");
  for (const std::int32_t id : named.ids)
    MOTLEY_CHECK(id >= -1 && id < vocabulary, "a named token, or none");
  MOTLEY_CHECK(params.logprob_tokens.size() <= motley::engine::max_named_tokens, "named tokens");
  for (const std::int32_t id : params.logprob_tokens)
    MOTLEY_CHECK(id >= 0 && id < vocabulary && params.logprobs, "a token that is scored");
  if (fields.routed_experts.kept())
    MOTLEY_CHECK(fields.routed_experts_from && *fields.routed_experts_from >= 0, "a first token");
  for (const auto& adapter : fields.adapters)
    MOTLEY_CHECK(motley::engine::is_adapter_name(adapter.name), "the name of an adapter");
}

// Its last message as a template might write it, with and without its end.
void check_open_message(const server::ChatCompletionRequest& request) {
  if (!request.continue_final) return;
  text::ChatInputs inputs = request.inputs;
  auto open = serving::OpenMessage::begin(inputs);
  if (!open.ok()) return check(open.error());
  const auto& last = *inputs.messages.if_array()->back().if_object();
  text::MarkedText written;
  written.append("<think>", false);
  written.append(*last.find("content")->if_string(), true);
  if (request.include_reasoning) written.append("</think>", false);
  const std::string whole = written.text;
  const auto cut = open->cut(written, serving::find_reasoning_form("think"));
  MOTLEY_CHECK(cut.ok(), "a text that was not changed is found");
  MOTLEY_CHECK(whole.starts_with(written.text) && written.text.size() < whole.size(), "a cut");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto body = json::parse(bytes, "body", {.depth = 64, .values = 100'000});
  if (!body.ok()) return 0;
  const text::GenerationConfig defaults;
  serving::Notices notices;
  const server::ApiContext context{.base = "base",
                                   .vocabulary = vocabulary,
                                   .defaults = &defaults,
                                   .tokenizer = &tokenizer(),
                                   .notices = &notices,
                                   .strict_fields = size % 2 == 1,
                                   .request_templates = true,
                                   .routed_experts = routed_sizes(size)};
  const auto completion = server::read_completion_request(*body, context, tokenizer());
  if (completion.ok()) {
    check(completion->fields);
    for (const auto& prompt : completion->prompts)
      MOTLEY_CHECK(!prompt.tokens.empty(), "a prompt of tokens");
  } else {
    check(completion.error());
  }
  const auto chat = server::read_chat_completion_request(*body, context);
  if (chat.ok()) {
    check(chat->fields);
    check_open_message(*chat);
  } else {
    check(chat.error());
  }
  const auto response = server::read_responses_request(*body, context);
  if (response.ok()) {
    check(response->chat.fields);
    MOTLEY_CHECK(response->chat.fields.choices == 1, "a response is one answer");
    MOTLEY_CHECK(!response->chat.inputs.messages.if_array()->empty(), "a conversation");
    MOTLEY_CHECK(
        response->conversation.items.size() == response->chat.inputs.messages.if_array()->size(),
        "each message comes from somewhere");
    const auto repeated = json::parse(motley::cat("{", response->repeated, "}"), "repeated");
    MOTLEY_CHECK(repeated.ok(), "what is repeated is JSON");
  } else {
    check(response.error());
  }
  const auto generate = server::read_generate_request(*body, context);
  if (generate.ok()) {
    check(generate->fields);
    MOTLEY_CHECK(!generate->tokens.empty(), "a prompt of tokens");
    for (const std::int32_t id : generate->tokens)
      MOTLEY_CHECK(id >= 0 && id < vocabulary, "a token of the prompt");
  } else {
    check(generate.error());
  }
  const auto use = size % 4 < 2 ? server::MessagesUse::answer : server::MessagesUse::count;
  const auto messages = server::read_messages_request(*body, context, use);
  if (messages.ok()) {
    check(messages->chat.fields);
    MOTLEY_CHECK(messages->chat.fields.choices == 1, "a message");
    MOTLEY_CHECK(!messages->chat.inputs.messages.if_array()->empty(), "something to answer");
    MOTLEY_CHECK(!messages->chat.must_call() || messages->chat.inputs.tools, "tools to call");
  } else {
    check(messages.error());
  }
  for (const auto& [name, value] : server::notice_headers(notices))
    MOTLEY_CHECK(value == motley::printable(value), "a header of one line");
  if (const auto load = server::read_load_adapter_request(*body); !load.ok()) check(load.error());
  if (const auto name = server::read_unload_adapter_request(*body); !name.ok()) check(name.error());
  return 0;
}
