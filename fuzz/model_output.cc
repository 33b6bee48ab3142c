// Any text as what a model writes, in each form of reasoning and calls: however it is cut into
// pieces the parts and their order are the same. Arguments of calls begin as objects, but for
// gpt-oss's, which are whatever was written; CallInput makes whole objects of all of them. The
// first byte says where to cut.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json/json.h"
#include "base/utf8.h"
#include "server/api/calls/call_input.h"
#include "serving/forms/form_parser.h"
#include "serving/forms/harmony_parser.h"

namespace server = motley::server;
namespace serving = motley::serving;

namespace {

// Every form of calls, without reasoning, with it, and in prompts that have begun it.
constexpr std::size_t ways = 3;
std::size_t forms() { return ways * serving::tool_forms().size(); }

const serving::ToolForm& calls_of(std::size_t form) { return serving::tool_forms()[form / ways]; }
bool is_harmony(std::size_t form) { return calls_of(form).body == serving::CallBody::harmony; }

std::unique_ptr<serving::OutputParser> make_parser(std::size_t form) {
  static const serving::ToolSchemas tools(
      motley::json::parse(R"([{"function": {"name": "f", "parameters":
        {"properties": {"s": {"type": "string"}, "n": {"type": "integer"}}}}}])",
                          "fixed")
          .value());
  if (is_harmony(form)) return std::make_unique<serving::HarmonyParser>();
  const serving::ReasoningForm* const reasoning =
      form % ways == 0 ? nullptr : serving::find_reasoning_form("hunyuan");
  return std::make_unique<serving::FormParser>(
      serving::FormParser::Options{.reasoning = reasoning,
                                   .begins_reasoning = form % ways == 2,
                                   .calls = &calls_of(form),
                                   .tools = tools});
}

serving::ParsedOutput parse(std::size_t form, std::string_view text, std::size_t piece) {
  serving::ParsedOutput all;
  const auto parser = make_parser(form);
  for (std::size_t at = 0; at < text.size(); at += piece)
    all.append(parser->push(text.substr(at, piece)));
  all.append(parser->finish());
  return all;
}

std::string input_of(std::string_view text, std::size_t piece) {
  server::CallInput input;
  std::string passed;
  for (std::size_t at = 0; at < text.size(); at += piece)
    passed += input.take(text.substr(at, piece));
  return input.whole(std::move(passed));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text =
      motley::utf8::repaired({reinterpret_cast<const char*>(data) + 1, size - 1});
  const std::size_t piece = 1 + data[0] % 16;
  const std::string input = input_of(text, piece);
  MOTLEY_CHECK(input == input_of(text, text.size() + 1), "the same input however it comes");
  MOTLEY_CHECK(input == input_of(input, 1), "what is whole stays as it is");
  MOTLEY_CHECK(input.starts_with('{') && input.ends_with('}'), "an object");
  for (std::size_t form = 0; form < forms(); ++form) {
    const serving::ParsedOutput whole = parse(form, text, text.size() + 1);
    const serving::ParsedOutput cut = parse(form, text, piece);
    MOTLEY_CHECK(whole.reasoning == cut.reasoning, "the same reasoning however it comes");
    MOTLEY_CHECK(whole.content == cut.content, "the same content however it comes");
    MOTLEY_CHECK(whole.calls == cut.calls, "the same calls however they come");
    MOTLEY_CHECK(whole.order == cut.order, "the same order however they come");
    for (const serving::CallPiece& call : whole.calls) {
      MOTLEY_CHECK(call.begins && !call.name.empty(), "a call has a name");
      const std::size_t first = call.arguments.find_first_not_of(" \t\r\n");
      MOTLEY_CHECK(first != std::string::npos, "a call has arguments");
      MOTLEY_CHECK(is_harmony(form) || call.arguments[first] == '{', "an object begins");
      const std::string object = input_of(call.arguments, piece);
      MOTLEY_CHECK(object.starts_with('{') && object.ends_with('}'), "an object for any arguments");
    }
  }
  return 0;
}
