// Any text as what a model writes, in each form of reasoning and calls: however it is cut into
// pieces the parts are the same, and arguments of calls begin as objects. The first byte says where
// to cut.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"
#include "server/output/harmony_parser.h"
#include "server/output/tagged_parser.h"

namespace server = motley::server;

namespace {

constexpr std::size_t forms = 6;

std::unique_ptr<server::OutputParser> make_parser(std::size_t form) {
  using server::CallSyntax;
  using Options = server::TaggedParser::Options;
  static const server::ToolSchemas schemas(
      motley::json::parse(R"([{"function": {"name": "f", "parameters":
        {"properties": {"s": {"type": "string"}}}}}])",
                          "fixed")
          .value());
  const std::array<Options, forms - 1> options = {
      Options{}, Options{.reasoning = true, .calls = CallSyntax::json},
      Options{.reasoning = true, .begins_reasoning = true},
      Options{.calls = CallSyntax::arg_tags, .schemas = schemas},
      Options{.reasoning = true, .calls = CallSyntax::parameters, .schemas = schemas}};
  if (form == forms - 1) return std::make_unique<server::HarmonyParser>();
  return std::make_unique<server::TaggedParser>(options[form]);
}

server::ParsedOutput parse(std::size_t form, std::string_view text, std::size_t piece) {
  server::ParsedOutput all;
  const auto parser = make_parser(form);
  for (std::size_t at = 0; at < text.size(); at += piece)
    all.append(parser->push(text.substr(at, piece)));
  all.append(parser->finish());
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text =
      motley::utf8::repaired({reinterpret_cast<const char*>(data) + 1, size - 1});
  const std::size_t piece = 1 + data[0] % 16;
  for (std::size_t form = 0; form < forms; ++form) {
    const server::ParsedOutput whole = parse(form, text, text.size() + 1);
    const server::ParsedOutput cut = parse(form, text, piece);
    MOTLEY_CHECK(whole.reasoning == cut.reasoning, "the same reasoning however it comes");
    MOTLEY_CHECK(whole.content == cut.content, "the same content however it comes");
    MOTLEY_CHECK(whole.calls == cut.calls, "the same calls however they come");
    for (const server::CallPiece& call : whole.calls) {
      MOTLEY_CHECK(call.begins && !call.name.empty(), "a call has a name");
      const std::size_t first = call.arguments.find_first_not_of(" \t\r\n");
      MOTLEY_CHECK(first != std::string::npos && call.arguments[first] == '{', "an object begins");
    }
  }
  return 0;
}
