// Any bytes as the body of a completion and of a chat: they are refused with a message of one line,
// or mean something within the engine's ranges.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/cat.h"
#include "base/check.h"
#include "base/json.h"
#include "server/api/adapter_request.h"
#include "server/api/chat_completion_request.h"
#include "server/api/completion_request.h"

namespace json = motley::json;
namespace server = motley::server;
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

void check(const motley::Error& error) {
  const std::string message = error.message();
  MOTLEY_CHECK(!message.empty() && message == motley::printable(message), "one printable line");
  MOTLEY_CHECK(motley::http_status(error.code()) < 500, "the client is at fault");
}

void check(const server::GenerationFields& fields) {
  const motley::engine::SamplingParams& params = fields.sampling;
  MOTLEY_CHECK(params.temperature >= 0 && params.temperature <= 2, "a temperature in range");
  MOTLEY_CHECK(params.top_p > 0 && params.top_p <= 1, "a share above nothing");
  MOTLEY_CHECK(params.min_p >= 0 && params.min_p <= 1, "a share");
  MOTLEY_CHECK(params.top_k >= 0 && params.top_k <= vocabulary, "a number of tokens");
  MOTLEY_CHECK(params.repetition_penalty > 0, "a factor");
  MOTLEY_CHECK(fields.choices >= 1 && fields.choices <= motley::engine::most_choices, "choices");
  MOTLEY_CHECK(!fields.max_tokens || *fields.max_tokens >= 0, "a number of tokens");
  for (const auto& bias : params.logit_bias)
    MOTLEY_CHECK(bias.token >= 0 && bias.token < vocabulary, "a bias of a token");
  for (const auto& adapter : fields.adapters)
    MOTLEY_CHECK(server::is_adapter_name(adapter.name), "the name of an adapter");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto body = json::parse(bytes, "body", {.depth = 64, .values = 100'000});
  if (!body.ok()) return 0;
  const text::GenerationConfig defaults;
  const server::ApiContext context{.base = "base", .vocabulary = vocabulary, .defaults = &defaults};
  const auto completion = server::read_completion_request(*body, context, tokenizer());
  if (completion.ok()) {
    check(completion->fields);
    for (const auto& prompt : completion->prompts)
      MOTLEY_CHECK(!prompt.tokens.empty(), "a prompt of tokens");
  } else {
    check(completion.error());
  }
  const auto chat = server::read_chat_completion_request(*body, context);
  if (chat.ok())
    check(chat->fields);
  else
    check(chat.error());
  if (const auto load = server::read_load_adapter_request(*body); !load.ok()) check(load.error());
  if (const auto name = server::read_unload_adapter_request(*body); !name.ok()) check(name.error());
  return 0;
}
