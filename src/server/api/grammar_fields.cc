#include "server/api/grammar_fields.h"

#include <string_view>

#include "base/cat.h"

namespace motley::server {
namespace {

using engine::GrammarSpec;
using Kind = GrammarSpec::Kind;

constexpr std::size_t most_alternatives = 1000;

Result<std::optional<GrammarSpec>> read_response_format(Fields& fields) {
  MOTLEY_TRY(const json::Object* const format, fields.object("response_format"));
  if (format == nullptr) return std::optional<GrammarSpec>();
  Fields inner(*format, "response_format");
  MOTLEY_TRY(const auto type, inner.string("type"));
  std::optional<GrammarSpec> spec;
  if (type == "json_object") {
    spec = GrammarSpec{.kind = Kind::json_object};
  } else if (type == "json_schema") {
    MOTLEY_TRY(const json::Object* const wrapper, inner.object("json_schema"));
    constexpr std::string_view place = "response_format.json_schema";
    if (wrapper == nullptr)
      return Error(ErrorCode::invalid_argument, "no schema", std::string(place),
                   "give {\"name\": ..., \"schema\": {...}}");
    Fields named(*wrapper, std::string(place));
    // Output always follows the schema, whether that is called strict or not.
    named.accept({"name", "description", "strict"});
    MOTLEY_TRY(const json::Object* const schema, named.object("schema"));
    MOTLEY_TRY_VOID(named.refuse_others());
    spec = schema == nullptr ? GrammarSpec{.kind = Kind::json_object}
                             : GrammarSpec{.kind = Kind::json_schema, .text = json::write(*schema)};
  } else if (type != "text") {
    return Error(ErrorCode::invalid_argument,
                 type ? cat("unknown format ", quote(*type)) : "a format without type",
                 "response_format.type", "use text, json_object or json_schema");
  }
  MOTLEY_TRY_VOID(inner.refuse_others());
  return spec;
}

Result<std::optional<GrammarSpec>> read_guided_json(Fields& fields) {
  const json::Value* const value = fields.take("guided_json");
  if (value == nullptr) return std::optional<GrammarSpec>();
  // The schema itself, or its text.
  if (const std::string* const text = value->if_string())
    return std::optional(GrammarSpec{.kind = Kind::json_schema, .text = *text});
  MOTLEY_TRY_VOID(value->as_object("guided_json"));
  return std::optional(GrammarSpec{.kind = Kind::json_schema, .text = json::write(*value)});
}

// One of several texts, as a schema-free grammar.
Result<std::optional<GrammarSpec>> read_guided_choice(Fields& fields) {
  MOTLEY_TRY(const auto choices, fields.strings("guided_choice", most_alternatives));
  if (choices.empty()) return std::optional<GrammarSpec>();
  std::string grammar = "root ::= ";
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) grammar += " | ";
    json::append_string(grammar, choices[i]);
  }
  return std::optional(GrammarSpec{.kind = Kind::ebnf, .text = std::move(grammar)});
}

Result<std::optional<GrammarSpec>> read_text(Fields& fields, std::string_view key, Kind kind) {
  MOTLEY_TRY(auto text, fields.string(key));
  if (!text) return std::optional<GrammarSpec>();
  return std::optional(GrammarSpec{.kind = kind, .text = *std::move(text)});
}

}  // namespace

Result<std::optional<GrammarField>> read_grammar(Fields& fields) {
  std::optional<GrammarField> found;
  const auto merge = [&](std::string_view key,
                         Result<std::optional<GrammarSpec>> read) -> Result<void> {
    if (!read.ok()) return std::move(read).error();
    if (!read->has_value()) return {};
    if (found)
      return Error(ErrorCode::invalid_argument, cat("both ", found->name, " and ", key),
                   std::string(key), "give one of them");
    found = GrammarField{.spec = **std::move(read), .name = key};
    return {};
  };
  MOTLEY_TRY_VOID(merge("response_format", read_response_format(fields)));
  MOTLEY_TRY_VOID(merge("guided_json", read_guided_json(fields)));
  MOTLEY_TRY_VOID(merge("guided_regex", read_text(fields, "guided_regex", Kind::regex)));
  MOTLEY_TRY_VOID(merge("guided_grammar", read_text(fields, "guided_grammar", Kind::ebnf)));
  MOTLEY_TRY_VOID(merge("guided_choice", read_guided_choice(fields)));
  return found;
}

}  // namespace motley::server
