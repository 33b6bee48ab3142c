// Any bytes as a chat template: it is refused with a message of one line, or it compiles, and then
// it renders a conversation within its limits or fails with such a message. Marks stay in order.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/cat.h"
#include "base/check.h"
#include "base/json/json.h"
#include "text/chat/chat_template.h"

namespace json = motley::json;
namespace text = motley::text;

namespace {

constexpr text::RenderLimits limits = {.steps = 20'000,
                                       .depth = 400,
                                       .output_bytes = std::size_t{1} << 16,
                                       .memory_bytes = std::size_t{4} << 20};

text::ChatInputs conversation() {
  text::ChatInputs inputs;
  inputs.messages = json::parse(R"([{"role": "system", "content": "Be terse."},
      {"role": "user", "content": "Hé <|im_end|> 日本"},
      {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [{"id": "abcdef123",
        "type": "function", "function": {"name": "f", "arguments": "{\"a\": [1, 2.5, null, true]}"}}]},
      {"role": "tool", "content": "5", "tool_call_id": "abcdef123"}, {"role": "user", "content": ""}])",
                                "messages")
                        .value();
  inputs.tools = json::parse(R"([{"type": "function", "function": {"name": "f", "description": "d",
      "parameters": {"type": "object", "properties": {"a": {"type": "array"}}}}}])",
                             "tools")
                     .value();
  inputs.kwargs.add("enable_thinking", true);
  inputs.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  return inputs;
}

void check_message(const motley::Error& error) {
  const std::string message = error.message();
  MOTLEY_CHECK(!message.empty() && message == motley::printable(message), "one printable line");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto compiled = text::ChatTemplate::compile(source, "input");
  if (!compiled.ok()) {
    check_message(compiled.error());
    return 0;
  }
  static const text::ChatInputs inputs = conversation();
  const auto rendered = compiled->render(inputs, limits);
  if (!rendered.ok()) {
    check_message(rendered.error());
    return 0;
  }
  MOTLEY_CHECK(rendered->text.size() <= limits.output_bytes, "within the limit");
  std::size_t end = 0;
  for (const text::Span span : rendered->untrusted) {
    MOTLEY_CHECK(span.begin < span.end && (end == 0 || span.begin > end),
                 "spans ascend and do not touch");
    end = span.end;
  }
  MOTLEY_CHECK(end <= rendered->text.size(), "spans lie in the text");
  return 0;
}
