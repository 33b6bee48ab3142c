// A grammar out of bytes goes the way of a request's: it is checked, compiled and followed by a
// helper process. Whatever it does to the helper, it is answered: it can be followed, or an error
// of one line says why not.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/cat.h"
#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "grammar/check/check.h"
#include "grammar/forked_helper.h"
#include "grammar/schema/schema.h"
#include "grammar/service.h"

namespace {

using namespace motley;           // NOLINT(google-build-using-namespace)
using namespace motley::grammar;  // NOLINT(google-build-using-namespace)

// Makes grammars of every kind out of bytes: those that a hostile client would write, with
// repetitions within repetitions, rules that name each other, and many alternatives.

class GrammarGenerator {
 public:
  GrammarGenerator(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  Spec spec() {
    using Kind = Spec::Kind;
    constexpr std::array kinds = {Kind::regex, Kind::ebnf, Kind::json_schema, Kind::structural_tag,
                                  Kind::json_object};
    const Kind kind = kinds[below(kinds.size())];
    // Bytes as they are, too.
    if (below(8) == 0) return {.kind = kind, .text = rest()};
    switch (kind) {
      case Kind::regex:
        return {.kind = kind, .text = regex(6)};
      case Kind::ebnf:
        return {.kind = kind, .text = ebnf()};
      case Kind::json_schema:
        return {.kind = kind, .text = schema(4)};
      case Kind::structural_tag:
        return {.kind = kind, .text = structural_tag()};
      case Kind::json_object:
        break;
    }
    return {.kind = kind, .text = {}};
  }

  // The next of the bytes, modulo a limit; 0 behind the last.
  std::size_t below(std::size_t limit) {
    const std::size_t value = at_ < size_ ? data_[at_] : 0;
    ++at_;
    return value % limit;
  }

 private:
  bool done() const { return at_ >= size_ || made_ > max_parts; }
  template <std::size_t n>
  std::string_view any(const std::array<std::string_view, n>& list) {
    return list[below(n)];
  }

  std::string rest() {
    if (at_ >= size_) return {};
    return {reinterpret_cast<const char*>(data_) + at_, size_ - at_};
  }

  std::string count() {
    constexpr std::array<std::string_view, 12> counts = {
        "*", "+", "?", "*?", "+?", "??", "{2}", "{0,3}", "{3,}", "{0}", "{1,200}", "{400}"};
    return std::string(any(counts));
  }

  std::string atom() {
    constexpr std::array<std::string_view, 16> atoms = {
        "a",   "b",      "[a-z]", "[^x]", ".",          "\\d",    "\\w", "\\s",
        "abc", "[a-z ]", "\\.",   "",     "\\u{1F600}", "[^\\n]", "\\n", "\xC3\xA9"};
    return std::string(any(atoms));
  }

  std::string regex(int depth) {
    ++made_;
    if (depth == 0 || done()) return atom();
    switch (below(7)) {
      case 0:
        return atom();
      case 1:
        return cat("(", regex(depth - 1), ")", count());
      case 2:
        return cat("(?:", regex(depth - 1), ")", count());
      case 3:
        return cat(regex(depth - 1), "|", regex(depth - 1));
      case 4:
        return cat(regex(depth - 1), regex(depth - 1));
      case 5: {
        std::string many = regex(depth - 1);
        const std::string one = many;
        for (std::size_t i = below(24); i > 0; --i) many += cat("|", one);
        return cat("(", many, ")", count());
      }
      default:
        return cat(atom(), count());
    }
  }

  std::string rule_name() { return below(6) == 0 ? "root" : cat("r", below(4)); }

  std::string expression(int depth) {
    ++made_;
    constexpr std::array<std::string_view, 7> counts = {"", "*", "+", "?", "{2}", "{0,3}", "{2,}"};
    if (depth == 0 || done()) return "\"a\"";
    switch (below(7)) {
      case 0:
        return cat("\"", any(std::array<std::string_view, 4>{"a", "bc", "", "\\n"}), "\"");
      case 1:
        return cat("[", any(std::array<std::string_view, 4>{"a-z", "^x", "a-zA-Z0-9_", "^\\\""}),
                   "]", any(counts));
      case 2:
        return cat(rule_name(), below(3) == 0 ? any(counts) : std::string_view());
      case 3:
        return cat("(", expression(depth - 1), ")", any(counts));
      case 4:
        return cat(expression(depth - 1), " | ", expression(depth - 1));
      case 5:
        return cat("(", rule_name(), ")", any(counts));
      default:
        return cat(expression(depth - 1), " ", expression(depth - 1));
    }
  }

  std::string ebnf() {
    std::string text = cat("root ::= ", expression(4), "\n");
    for (int i = 0; i < 4; ++i) text += cat("r", i, " ::= ", expression(3), "\n");
    return text;
  }

  std::string escaped(std::string_view text) {
    std::string result;
    for (const char each : text) {
      if (each == '"' || each == '\\') result += '\\';
      result += each;
    }
    return result;
  }

  std::string schema(int depth) {
    ++made_;
    constexpr std::array<std::string_view, 12> leaves = {
        R"({"type": "string"})",
        R"({"type": "integer", "minimum": -3, "maximum": 1000000007})",
        R"({"type": "number", "exclusiveMinimum": 0.5})",
        R"({"type": "boolean"})",
        "{}",
        R"({"$ref": "#"})",
        R"({"$ref": "#/$defs/a"})",
        R"({"const": {"a": [1, null]}})",
        R"({"enum": ["a", 1, null, {"b": 2}]})",
        R"({"type": "string", "format": "date-time"})",
        R"({"type": "string", "maxLength": 200, "minLength": 3})",
        "false"};
    if (depth == 0 || done()) return std::string(any(leaves));
    switch (below(9)) {
      case 0: {
        std::string fields;
        std::string required;
        for (std::size_t i = 0, end = below(6); i < end; ++i) {
          fields += cat(i == 0 ? "" : ", ", "\"p", i, "\": ", schema(depth - 1));
          if (below(2) == 0) required += cat(required.empty() ? "" : ", ", "\"p", i, "\"");
        }
        return cat(R"({"type": "object", "properties": {)", fields, R"(}, "required": [)", required,
                   R"(], "additionalProperties": )", below(2) == 0 ? "false" : schema(depth - 1),
                   "}");
      }
      case 1:
        return cat(R"({"type": "array", "items": )", schema(depth - 1), R"(, "minItems": )",
                   below(5), R"(, "maxItems": )", below(40), "}");
      case 2:
        return cat(R"({"anyOf": [)", schema(depth - 1), ", ", schema(depth - 1), "]}");
      case 3:
        return cat(R"({"allOf": [)", schema(depth - 1), ", ", schema(depth - 1), "]}");
      case 4:
        return cat(R"({"type": "string", "pattern": ")", escaped(regex(3)), "\"}");
      case 5:
        return cat(R"({"$defs": {"a": )", schema(depth - 1), R"(}, "type": "object", )",
                   R"("properties": {"x": {"$ref": "#/$defs/a"}}, "patternProperties": {"^)",
                   escaped(regex(1)), R"(": {"$ref": "#/$defs/a"}}})");
      case 6:
        return cat("{", keyword(depth - 1), ", ", keyword(depth - 1), ", \"x\": 1}");
      case 7:
        return cat(R"({"type": ["object", "null"], "properties": {"p0": )", schema(depth - 1),
                   "}, ", keyword(depth - 1), "}");
      default:
        return cat(R"({"type": "array", "prefixItems": [)", schema(depth - 1), ", ",
                   schema(depth - 1), "]}");
    }
  }

  // What a schema may have beside all others; a keyword that it has twice makes it no JSON.
  std::string keyword(int depth) {
    ++made_;
    constexpr std::array<std::string_view, 16> plain = {
        R"("uniqueItems": true)",
        R"("multipleOf": 0.01)",
        R"("multipleOf": 7)",
        R"("minProperties": 1)",
        R"("required": ["p0", "p9"])",
        R"("dependentRequired": {"p0": ["p1"], "p1": ["p2", "p0"]})",
        R"("propertyNames": {"pattern": "^p"})",
        R"("propertyNames": {"enum": ["p0", "p1"]})",
        R"("unevaluatedProperties": false)",
        R"("unevaluatedItems": false)",
        R"("minimum": 1e300)",
        R"("exclusiveMaximum": -0.5)",
        R"("enum": [1, "a", [1, 2], {"p0": null}])",
        R"("format": "email")",
        R"("discriminator": {"propertyName": "p0"})",
        R"("$ref": "#/properties/p0")"};
    if (depth <= 0 || done()) return std::string(any(plain));
    constexpr std::array<std::string_view, 8> nested = {
        "not", "if", "then", "contains", "propertyNames", "additionalProperties", "items", "else"};
    switch (below(6)) {
      case 0:
        return cat("\"", any(nested), "\": ", schema(depth - 1));
      case 1: {
        std::string ways = schema(depth - 1);
        for (std::size_t i = below(5); i > 0; --i) ways += cat(", ", schema(depth - 1));
        return cat(R"("oneOf": [)", ways, "]");
      }
      case 2:
        return cat(R"("dependentSchemas": {"p0": )", schema(depth - 1), "}");
      case 3:
        return cat(R"("anyOf": [{"required": ["p0"]}, )", schema(depth - 1), "]");
      case 4:
        return cat(R"("not": {"enum": [1, "a"]}, "allOf": [)", schema(depth - 1), "]");
      default:
        return std::string(any(plain));
    }
  }

  std::string structural_tag() {
    const std::string content =
        below(2) == 0 ? cat(R"({"type": "json_schema", "style": ")",
                            any(std::array<std::string_view, 3>{"json", "qwen_xml", "glm_xml"}),
                            R"(", "json_schema": )", schema(3), "}")
                      : cat(R"({"type": "regex", "pattern": ")", escaped(regex(3)), "\"}");
    const std::string tag =
        cat(R"({"type": "tag", "begin": "<a>", "content": )", content, R"(, "end": "</a>"})");
    switch (below(3)) {
      case 0:
        return cat(R"({"type": "structural_tag", "format": )", tag, "}");
      case 1:
        return cat(R"({"type": "structural_tag", "format": {"type": "triggered_tags", )",
                   R"("triggers": ["<a"], "tags": [)", tag, "]}}");
      default:
        return cat(R"({"type": "structural_tag", "format": {"type": "sequence", "elements": [)",
                   tag, ", ", tag, "]}}");
    }
  }

  static constexpr int max_parts = 400;

  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
  int made_ = 0;
};

constexpr std::int32_t end_id = 256;
constexpr std::int64_t width = 264;

Tokens some_tokens() {
  Tokens tokens{.bytes = {}, .width = width, .end_ids = {end_id}};
  for (int byte = 0; byte < 256; ++byte) tokens.bytes.emplace_back(1, static_cast<char>(byte));
  tokens.bytes.insert(tokens.bytes.end(), {"", "ab", "{\"", "\": ", "true", "aaaa", "<a>", "p0"});
  return tokens;
}

Service& service() {
  static Service the_service(some_tokens(),
                             {.start = fork_helper,
                              .limits = {.compile_time = std::chrono::milliseconds(100),
                                         .mask_time = std::chrono::milliseconds(30),
                                         .excess_time = std::chrono::milliseconds(100),
                                         .memory = std::uint64_t{64} << 20},
                              // Nothing is kept: the next grammar is another one.
                              .idle_helpers = 0});
  return the_service;
}

void expect_one_line(const Error& error) {
  const std::string message = error.message();
  MOTLEY_CHECK(!message.empty() && message == printable(message), "one printable line");
  MOTLEY_CHECK(error.code() == ErrorCode::invalid_argument, "the grammar's fault");
}

// A text that the grammar allows, chosen by bytes.
void follow(Cursor& cursor, GrammarGenerator& bytes) {
  std::vector<std::uint32_t> mask((width + 31) / 32);
  for (int i = 0; i < 12; ++i) {
    cursor.request_mask();
    cursor.wait(TimePoint::max());
    if (const auto failure = cursor.failure()) return expect_one_line(*failure);
    cursor.copy_mask(mask);
    const std::size_t from = bytes.below(width);
    std::int32_t token = -1;
    for (std::size_t k = 0; k < width && token < 0; ++k) {
      const auto each = static_cast<std::int32_t>((from + k) % width);
      if (((mask[static_cast<std::size_t>(each) / 32] >> (each % 32)) & 1U) != 0) token = each;
    }
    if (token < 0 || cursor.accept(token)) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  log::configure({.level = log::Level::off});
  GrammarGenerator bytes(data, size);
  Spec spec = bytes.spec();
  spec.any_whitespace = bytes.below(2) == 0;
  // As the server does, to name what is not enforced.
  if (check(spec).ok()) {
    const Result<ReadableSpec> read = read_schemas(spec);
    if (!read.ok()) expect_one_line(read.error());
  }
  auto answer = std::make_shared<std::promise<Result<Service::Ref>>>();
  service().submit(spec, {}, 1,
                   [answer](Result<Service::Ref> result) { answer->set_value(std::move(result)); });
  const Result<Service::Ref> grammar = answer->get_future().get();
  if (!grammar.ok()) {
    expect_one_line(grammar.error());
    return 0;
  }
  follow(*service().begin_text(*grammar, {}), bytes);
  return 0;
}
