#include "server/api/calls/grammar_fields.h"

#include <string_view>
#include <utility>

#include "base/cat.h"
#include "server/api/fields/field_limits.h"

namespace motley::server {
namespace {

using Kind = grammar::Spec::Kind;

// vLLM's first form: {"structures": [{"begin", "schema", "end"}], "triggers"}.
Result<json::Value> triggered_tags(Fields& fields) {
  json::Array tags;
  const json::Value* const structures = fields.take("structures");
  MOTLEY_TRY(const json::Array* const list, structures->as_array(fields.place("structures")));
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string key = cat("structures[", i, "]");
    MOTLEY_TRY(const json::Object* const structure, (*list)[i].as_object(fields.place(key)));
    Fields inner = fields.inside(*structure, key);
    MOTLEY_TRY(const auto begin, inner.string("begin"));
    MOTLEY_TRY(const auto end, inner.string("end"));
    MOTLEY_TRY(const json::Object* const schema, inner.object("schema"));
    if (!begin || schema == nullptr)
      return Error(ErrorCode::invalid_argument, "a structure without begin or schema",
                   fields.place(key), "give {\"begin\", \"schema\", \"end\"}");
    MOTLEY_TRY_VOID(inner.finish());
    json::Object content{{"type", "json_schema"}, {"json_schema", *schema}};
    tags.emplace_back(json::Object{
        {"begin", *begin}, {"content", std::move(content)}, {"end", end.value_or("")}});
  }
  json::Array triggers;
  MOTLEY_TRY(auto words, fields.strings("triggers", field_limits::guided_choices.most));
  for (std::string& word : words) triggers.emplace_back(std::move(word));
  json::Object format{
      {"type", "triggered_tags"}, {"triggers", std::move(triggers)}, {"tags", std::move(tags)}};
  return json::Value(std::move(format));
}

// XGrammar's structural tag: {"format": {...}}.
Result<std::optional<grammar::Spec>> structural_tag(const Fields& parent,
                                                    const json::Object& object,
                                                    std::string_view key) {
  Fields fields = parent.inside(object, key);
  fields.accept({"type"});
  json::Value format;
  if (object.find_set("structures") != nullptr) {
    MOTLEY_TRY(format, triggered_tags(fields));
  } else {
    MOTLEY_TRY(const json::Object* const given, fields.object("format"));
    if (given == nullptr)
      return Error(ErrorCode::invalid_argument, "a structural tag without format",
                   fields.place("format"), "give {\"format\": {...}}");
    format = *given;
  }
  MOTLEY_TRY_VOID(fields.finish());
  json::Object tag{{"type", "structural_tag"}, {"format", std::move(format)}};
  return std::optional(grammar::Spec{.kind = Kind::structural_tag,
                                     .text = json::write(json::Value(std::move(tag)))});
}

Result<std::optional<grammar::Spec>> read_response_format(Fields& fields, bool& strict) {
  MOTLEY_TRY(const json::Object* const format, fields.object("response_format"));
  if (format == nullptr) return std::optional<grammar::Spec>();
  Fields inner = fields.inside(*format, "response_format");
  MOTLEY_TRY(const auto type, inner.string("type"));
  if (type == "structural_tag") return structural_tag(fields, *format, "response_format");
  std::optional<grammar::Spec> spec;
  if (type == "json_object") {
    spec = grammar::Spec{.kind = Kind::json_object};
  } else if (type == "json_schema") {
    MOTLEY_TRY(const json::Object* const wrapper, inner.object("json_schema"));
    constexpr std::string_view place = "response_format.json_schema";
    if (wrapper == nullptr)
      return Error(ErrorCode::invalid_argument, "no schema", std::string(place),
                   "give {\"name\": ..., \"schema\": {...}}");
    Fields named = inner.inside(*wrapper, "json_schema");
    // Output always follows the schema; "strict" requires all of it.
    named.accept({"name", "description"});
    MOTLEY_TRY(const auto is_strict, named.boolean("strict"));
    strict = is_strict.value_or(false);
    MOTLEY_TRY(const json::Object* const schema, named.object("schema"));
    MOTLEY_TRY_VOID(named.finish());
    spec = schema == nullptr
               ? grammar::Spec{.kind = Kind::json_object}
               : grammar::Spec{.kind = Kind::json_schema, .text = json::write(*schema)};
  } else if (type != "text") {
    return Error(ErrorCode::invalid_argument,
                 type ? cat("unknown format ", quote(*type)) : "a format without type",
                 "response_format.type", "use text, json_object, json_schema or structural_tag");
  }
  MOTLEY_TRY_VOID(inner.finish());
  return spec;
}

// The schema as an object, or as its text.
Result<std::optional<grammar::Spec>> read_schema(Fields& fields, std::string_view key) {
  const json::Value* const value = fields.take(key);
  if (value == nullptr) return std::optional<grammar::Spec>();
  if (const std::string* const text = value->if_string())
    return std::optional(grammar::Spec{.kind = Kind::json_schema, .text = *text});
  MOTLEY_TRY_VOID(value->as_object(fields.place(key)));
  return std::optional(grammar::Spec{.kind = Kind::json_schema, .text = json::write(*value)});
}

// One of several texts, as a grammar.
Result<std::optional<grammar::Spec>> read_choice(Fields& fields, std::string_view key) {
  MOTLEY_TRY(const auto choices, fields.strings(key, field_limits::guided_choices.most));
  if (choices.empty()) return std::optional<grammar::Spec>();
  std::string grammar = "root ::= ";
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) grammar += " | ";
    json::append_string(grammar, choices[i]);
  }
  return std::optional(grammar::Spec{.kind = Kind::ebnf, .text = std::move(grammar)});
}

Result<std::optional<grammar::Spec>> read_text(Fields& fields, std::string_view key, Kind kind) {
  MOTLEY_TRY(auto text, fields.string(key));
  if (!text) return std::optional<grammar::Spec>();
  return std::optional(grammar::Spec{.kind = kind, .text = *std::move(text)});
}

Result<std::optional<grammar::Spec>> read_json_object(Fields& fields) {
  MOTLEY_TRY(const auto wanted, fields.boolean("json_object"));
  if (!wanted.value_or(false)) return std::optional<grammar::Spec>();
  return std::optional(grammar::Spec{.kind = Kind::json_object});
}

// A structural tag, or its text.
Result<std::optional<grammar::Spec>> read_tag(Fields& fields, std::string_view key) {
  const json::Value* const value = fields.take(key);
  if (value == nullptr) return std::optional<grammar::Spec>();
  const std::string place = fields.place(key);
  const std::string* const text = value->if_string();
  if (text == nullptr) {
    MOTLEY_TRY(const json::Object* const object, value->as_object(place));
    return structural_tag(fields, *object, key);
  }
  const auto parsed = json::parse(*text, "the text", {.values = 200'000});
  if (!parsed.ok()) return Error(ErrorCode::invalid_argument, parsed.error().message(), place);
  MOTLEY_TRY(const json::Object* const object, parsed->as_object(place));
  return structural_tag(fields, *object, key);
}

// Reads the fields that request a form, one after the other.
class GrammarReader {
 public:
  Result<void> merge(std::string_view key, Result<std::optional<grammar::Spec>> read,
                     bool strict = false) {
    if (!read.ok()) return std::move(read).error();
    if (!read->has_value()) return {};
    if (found_)
      return Error(ErrorCode::invalid_argument, cat("both ", found_->name, " and ", key),
                   std::string(key), "give one of them");
    found_ = GrammarField{.spec = **std::move(read), .name = key, .strict = strict};
    return {};
  }

  Result<void> read_structured_outputs(Fields& fields) {
    MOTLEY_TRY(const json::Object* const object, fields.object("structured_outputs"));
    if (object == nullptr) return {};
    Fields inner = fields.inside(*object, "structured_outputs");
    MOTLEY_TRY_VOID(merge("structured_outputs.json", read_schema(inner, "json")));
    MOTLEY_TRY_VOID(merge("structured_outputs.regex", read_text(inner, "regex", Kind::regex)));
    MOTLEY_TRY_VOID(merge("structured_outputs.choice", read_choice(inner, "choice")));
    MOTLEY_TRY_VOID(merge("structured_outputs.grammar", read_text(inner, "grammar", Kind::ebnf)));
    MOTLEY_TRY_VOID(merge("structured_outputs.json_object", read_json_object(inner)));
    MOTLEY_TRY_VOID(merge("structured_outputs.structural_tag", read_tag(inner, "structural_tag")));
    MOTLEY_TRY(const auto one_line, inner.boolean("disable_any_whitespace"));
    any_whitespace_ = !one_line.value_or(false);
    MOTLEY_TRY(const auto closed, inner.boolean("disable_additional_properties"));
    if (closed.value_or(false))
      return unsupported("structured_outputs.disable_additional_properties",
                         "say \"additionalProperties\": false in the schema");
    // Names the library that implements it.
    inner.accept({"disable_fallback", "backend", "_backend", "_backend_was_auto"});
    return inner.finish();
  }

  std::optional<GrammarField> found() && {
    if (found_) found_->spec.any_whitespace = any_whitespace_;
    return std::move(found_);
  }

 private:
  static Error unsupported(std::string place, std::string fix) {
    return {ErrorCode::unsupported, "not something this server does", std::move(place),
            std::move(fix)};
  }

  std::optional<GrammarField> found_;
  bool any_whitespace_ = true;
};

}  // namespace

Result<std::optional<GrammarField>> read_grammar(Fields& fields) {
  GrammarReader reader;
  bool strict = false;
  auto format = read_response_format(fields, strict);
  MOTLEY_TRY_VOID(reader.merge("response_format", std::move(format), strict));
  MOTLEY_TRY_VOID(reader.merge("guided_json", read_schema(fields, "guided_json")));
  MOTLEY_TRY_VOID(reader.merge("guided_regex", read_text(fields, "guided_regex", Kind::regex)));
  MOTLEY_TRY_VOID(reader.merge("guided_grammar", read_text(fields, "guided_grammar", Kind::ebnf)));
  MOTLEY_TRY_VOID(reader.merge("guided_choice", read_choice(fields, "guided_choice")));
  MOTLEY_TRY_VOID(reader.read_structured_outputs(fields));
  return std::move(reader).found();
}

Result<std::optional<GrammarField>> read_text_format(Fields format) {
  MOTLEY_TRY(const auto type, format.string("type"));
  std::optional<grammar::Spec> spec;
  bool strict = false;
  if (type == "json_object") {
    spec = grammar::Spec{.kind = Kind::json_object};
  } else if (type == "json_schema") {
    format.accept({"name", "description"});
    MOTLEY_TRY(const auto is_strict, format.boolean("strict"));
    strict = is_strict.value_or(false);
    MOTLEY_TRY(const json::Object* const schema, format.object("schema"));
    if (schema == nullptr)
      return Error(ErrorCode::invalid_argument, "no schema", format.place("schema"),
                   "give {\"type\": \"json_schema\", \"name\": ..., \"schema\": {...}}");
    spec = grammar::Spec{.kind = Kind::json_schema, .text = json::write(*schema)};
  } else if (type != "text") {
    return Error(ErrorCode::invalid_argument,
                 type ? cat("unknown format ", quote(*type)) : "a format without type",
                 format.place("type"), "use text, json_object or json_schema");
  }
  MOTLEY_TRY_VOID(format.finish());
  if (!spec) return std::optional<GrammarField>();
  return std::optional(
      GrammarField{.spec = *std::move(spec), .name = "text.format", .strict = strict});
}

}  // namespace motley::server
