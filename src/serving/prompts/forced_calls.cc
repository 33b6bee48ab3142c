#include "serving/prompts/forced_calls.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "base/check.h"
#include "serving/forms/forced_parsers.h"
#include "serving/forms/form_parser.h"
#include "serving/forms/harmony_parser.h"
#include "serving/prompts/grammar_formats.h"
#include "serving/prompts/written_calls.h"

namespace motley::serving {
namespace {

using formats::alternatives;
using formats::constant;
using formats::regex;
using formats::schema;
using formats::sequence;
using formats::structural_tag;
using formats::token;
using Read = ForcedCalls::Read;

// The schema of arguments: an object, whatever else the given schema says. A function without
// parameters takes none.
json::Value arguments_schema(const json::Value* given) {
  const json::Object* const schema = given == nullptr ? nullptr : given->if_object();
  if (schema == nullptr || schema->empty())
    return json::Object(
        {{"type", "object"}, {"properties", json::Object()}, {"additionalProperties", false}});
  json::Object arguments = *schema;
  if (!schema->contains("type")) arguments.add("type", "object");
  // Libraries write this for a function without parameters; the model must not invent any.
  const json::Value* const properties = schema->find("properties");
  const bool none = properties != nullptr && properties->if_object() != nullptr &&
                    properties->if_object()->empty();
  const bool says_more = std::ranges::any_of(schema->members(), [](const json::Member& member) {
    return member.key.ends_with("Properties") || member.key.ends_with("Of") || member.key == "$ref";
  });
  if (none && !says_more) arguments.add("additionalProperties", false);
  return arguments;
}

// The functions that may be called.
std::vector<CallableFunction> functions_of(const ChatRequest& request) {
  std::vector<CallableFunction> functions;
  for (const json::Value& tool : *request.inputs.tools->if_array()) {
    const json::Object& function = *tool.if_object()->find("function")->if_object();
    const json::Value* const given = function.find_set("parameters");
    const std::string& name = *function.find("name")->if_string();
    if (request.tool_use == ToolUse::one_named && name != request.tool_name) continue;
    const json::Value* const strict = function.find_set("strict");
    functions.push_back(
        {name, arguments_schema(given),
         strict != nullptr && strict->if_boolean() != nullptr && *strict->if_boolean()});
    if (request.tool_use == ToolUse::one_named) break;
  }
  return functions;
}

// Whether the name contains nothing that a model's form would interpret.
bool is_plain(const CallableFunction& function) {
  return std::ranges::all_of(function.name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

// At least one call of any of the functions.
json::Object calls_of(json::Array tags, std::string_view separator, bool several) {
  return json::Object{{"type", "tags_with_separator"},
                      {"tags", std::move(tags)},
                      {"separator", std::string(separator)},
                      {"at_least_one", true},
                      {"stop_after_first", !several}};
}

// One call, whose beginning is part of the prompt.
ForcedCalls one_call(const CallableFunction& function, const WrittenCalls& written,
                     std::size_t calls_before) {
  std::string head = written.head_of(function.name, calls_before);
  if (written.in_json())
    return {.opening = std::move(head),
            .grammar = {.kind = grammar::Spec::Kind::json_schema,
                        .text = json::write(function.parameters)}};
  return {.opening = head,
          .grammar = structural_tag(written.after_head(function)),
          .read = Read::native,
          .head = head};
}

// [{"name", "parameters"}, ...]
ForcedCalls listed_calls(std::span<const CallableFunction> functions, bool several) {
  json::Array tags;
  for (const CallableFunction& function : functions) {
    std::string begin =
        cat("{\"name\": ", json::string_literal(function.name), ", \"parameters\": ");
    tags.emplace_back(json::Object(
        {{"begin", std::move(begin)}, {"content", schema(function.parameters)}, {"end", "}"}}));
  }
  json::Array parts;
  parts.emplace_back(constant("["));
  parts.emplace_back(calls_of(std::move(tags), ", ", several));
  parts.emplace_back(constant("]"));
  return {.grammar = structural_tag(sequence(std::move(parts))), .read = Read::list};
}

// The beginnings of a call and of an answer in gpt-oss's form, which contain special tokens.
constexpr std::string_view harmony_call = "<|channel|>commentary to=functions.";
constexpr std::string_view channel_mark = "<|channel|>";
constexpr std::string_view constrain_mark = "<|constrain|>";
constexpr std::string_view message_mark = "<|message|>";

// The ids of gpt-oss's marks, if the tokenizer has them.
struct HarmonyMarks {
  std::int32_t constrain;
  std::int32_t message;

  static std::optional<HarmonyMarks> of(std::span<const SpecialToken> special) {
    const auto constrain = std::ranges::find(special, constrain_mark, &SpecialToken::text);
    const auto message = std::ranges::find(special, message_mark, &SpecialToken::text);
    if (constrain == special.end() || message == special.end()) return std::nullopt;
    return HarmonyMarks{constrain->id, message->id};
  }
};

// A call of any of the functions, preceded by `before`. In this form an answer has one call, whose
// end ends the answer.
json::Array harmony_calls(std::span<const CallableFunction> functions, const HarmonyMarks& marks,
                          std::string_view before) {
  json::Array calls;
  for (const CallableFunction& function : functions) {
    json::Array parts;
    parts.emplace_back(constant(cat(before, function.name, " ")));
    parts.emplace_back(token(marks.constrain));
    parts.emplace_back(constant("json"));
    parts.emplace_back(token(marks.message));
    parts.emplace_back(schema(function.parameters));
    calls.emplace_back(sequence(std::move(parts)));
  }
  return calls;
}

// The requested form of content as a part of a structural tag. Null if it cannot be part of one.
Result<json::Value> content_format(const grammar::Spec& form, std::string_view field) {
  constexpr json::ParseLimits limits = {.depth = 64, .values = 200'000};
  switch (form.kind) {
    case grammar::Spec::Kind::json_object:
      return json::Value(schema(json::Object{{"type", "object"}, {"additionalProperties", true}}));
    case grammar::Spec::Kind::json_schema: {
      MOTLEY_TRY(json::Value parsed, json::parse(form.text, field, limits));
      return json::Value(schema(std::move(parsed)));
    }
    case grammar::Spec::Kind::regex:
      return json::Value(regex(form.text));
    case grammar::Spec::Kind::ebnf:
      return json::Value(json::Object{{"type", "grammar"}, {"grammar", form.text}});
    case grammar::Spec::Kind::structural_tag:
      break;
  }
  MOTLEY_TRY(const json::Value tag, json::parse(form.text, field, limits));
  const json::Object* const object = tag.if_object();
  const json::Value* const format = object == nullptr ? nullptr : object->find_set("format");
  return format == nullptr ? json::Value() : *format;
}

std::optional<WrittenCalls> written_calls(const ChatFormat& format,
                                          std::span<const SpecialToken> special) {
  return format.calls == nullptr ? std::nullopt : WrittenCalls::of(*format.calls, special);
}

ForcedCalls choose(const ChatRequest& request, const ChatFormat& format,
                   std::span<const SpecialToken> special, std::string_view prompt) {
  const std::vector<CallableFunction> functions = functions_of(request);
  const bool plain = std::ranges::all_of(functions, is_plain);
  const bool one = request.tool_use == ToolUse::one_named;
  if (format.is_harmony() && plain && functions.size() == 1)
    return {.opening = cat(harmony_call, functions.front().name, " ", constrain_mark, "json",
                           message_mark),
            .grammar = {.kind = grammar::Spec::Kind::json_schema,
                        .text = json::write(functions.front().parameters)}};
  if (format.is_harmony() && plain) {
    if (const auto marks = HarmonyMarks::of(special))
      return {.opening = std::string(harmony_call),
              .grammar = structural_tag(alternatives(harmony_calls(functions, *marks, ""))),
              .read = Read::native,
              .head = std::string(harmony_call)};
  }

  ForcedCalls forced;
  const auto written = plain ? written_calls(format, special) : std::nullopt;
  if (written) {
    forced = one ? one_call(functions.front(), *written, request.calls_before)
                 : ForcedCalls{
                       .grammar = structural_tag(written->calls(functions, request.parallel_calls)),
                       .read = Read::native};
  } else if (one) {
    forced.grammar = {.kind = grammar::Spec::Kind::json_schema,
                      .text = json::write(functions.front().parameters)};
  } else {
    forced = listed_calls(functions, request.parallel_calls);
  }
  forced.opening.insert(0, opening_of_content(format, prompt));
  return forced;
}

}  // namespace

ForcedCalls force_calls(const ChatRequest& request, const ChatFormat& format,
                        std::span<const SpecialToken> special, std::string_view prompt) {
  MOTLEY_CHECK(request.inputs.tools && request.tool_use >= ToolUse::one_named,
               "calls that must be made, and tools for them");
  return choose(request, format, special, prompt);
}

std::optional<grammar::Spec> strict_calls(const ChatRequest& request, const ChatFormat& format,
                                          std::span<const SpecialToken> special) {
  if (request.tool_use != ToolUse::free) return std::nullopt;
  const auto written = written_calls(format, special);
  if (!written) return std::nullopt;
  const std::vector<CallableFunction> functions = functions_of(request);
  if (!std::ranges::any_of(functions, &CallableFunction::strict) ||
      !std::ranges::all_of(functions, is_plain))
    return std::nullopt;
  return structural_tag(written->calls_in_text(functions, request.parallel_calls));
}

Result<std::optional<ForcedCalls>> calls_or_form(const ChatRequest& request,
                                                 const GenerationSettings& settings,
                                                 const ChatFormat& format,
                                                 std::span<const SpecialToken> special,
                                                 std::string_view prompt) {
  const std::optional<ForcedCalls> neither;
  const auto& form = settings.sampling.grammar;
  if (!form || request.tool_use != ToolUse::free) return neither;
  const std::vector<CallableFunction> functions = functions_of(request);
  if (!std::ranges::all_of(functions, is_plain)) return neither;
  MOTLEY_TRY(json::Value content, content_format(*form, settings.grammar_field));
  if (content.is_null()) return neither;
  json::Array ways;
  if (format.is_harmony()) {
    const auto marks = HarmonyMarks::of(special);
    if (!marks) return neither;
    json::Array answer;
    answer.emplace_back(constant("final"));
    answer.emplace_back(token(marks->message));
    answer.emplace_back(std::move(content));
    ways = harmony_calls(functions, *marks, "commentary to=functions.");
    ways.emplace_back(sequence(std::move(answer)));
    return std::optional(ForcedCalls{.opening = std::string(channel_mark),
                                     .grammar = structural_tag(alternatives(std::move(ways))),
                                     .read = Read::native,
                                     .head = std::string(channel_mark)});
  }
  const auto written = written_calls(format, special);
  if (!written) return neither;
  ways.emplace_back(std::move(content));
  ways.emplace_back(written->calls(functions, request.parallel_calls));
  return std::optional(ForcedCalls{.opening = std::string(opening_of_content(format, prompt)),
                                   .grammar = structural_tag(alternatives(std::move(ways))),
                                   .read = Read::native});
}

std::unique_ptr<OutputParser> make_forced_parser(const ForcedCalls& forced,
                                                 const ChatRequest& request,
                                                 const ChatFormat& format) {
  switch (forced.read) {
    case Read::arguments:
      return std::make_unique<NamedCallParser>(functions_of(request).front().name);
    case Read::list:
      return std::make_unique<CallListParser>();
    case Read::native:
      break;
  }
  std::unique_ptr<OutputParser> parser;
  if (format.is_harmony()) {
    parser = std::make_unique<HarmonyParser>();
  } else {
    parser = std::make_unique<FormParser>(
        FormParser::Options{.calls = format.calls,
                            .tools = ToolSchemas(*request.inputs.tools),
                            .one_call = !request.parallel_calls});
  }
  const ParsedOutput nothing = parser->push(forced.head);
  MOTLEY_CHECK(nothing.empty(), "a head in the prompt begins a call and is no part of it");
  return parser;
}

}  // namespace motley::serving
