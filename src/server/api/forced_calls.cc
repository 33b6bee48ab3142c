#include "server/api/forced_calls.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "base/check.h"
#include "server/output/call_reader.h"
#include "server/output/forced_parsers.h"
#include "server/output/harmony_parser.h"
#include "server/output/tagged_parser.h"

namespace motley::server {
namespace {

using engine::GrammarSpec;
using Read = ForcedCalls::Read;

json::Object object_of(std::vector<json::Member> members) {
  return json::Object::make(std::move(members)).value();
}

struct Function {
  std::string name;
  json::Value parameters;
  bool strict = false;
};

// Those that may be called.
std::vector<Function> functions_of(const ChatCompletionRequest& request) {
  std::vector<Function> functions;
  for (const json::Value& tool : *request.inputs.tools->if_array()) {
    const json::Object& function = *tool.if_object()->find("function")->if_object();
    const json::Value* const given = function.find_set("parameters");
    const std::string& name = *function.find("name")->if_string();
    if (request.tool_use == ToolUse::one_named && name != request.tool_name) continue;
    const json::Value* const strict = function.find_set("strict");
    functions.push_back(
        {name, given != nullptr ? *given : json::Value(object_of({{"type", "object"}})),
         strict != nullptr && strict->if_boolean() != nullptr && *strict->if_boolean()});
    if (request.tool_use == ToolUse::one_named) break;
  }
  return functions;
}

// Nothing in it that a model's form would take for more than a name.
bool is_plain(const Function& function) {
  return std::ranges::all_of(function.name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

// What a grammar says of text writes no special token.
bool can_write(const ChatFormat& format, const text::Tokenizer& tokenizer, bool reasoning) {
  return std::ranges::none_of(format.marks(), [&](std::string_view mark) {
    if (!reasoning && (mark == "<think>" || mark == "</think>")) return false;
    const auto id = tokenizer.id_of(mark);
    return id && tokenizer.is_special(*id);
  });
}

json::Object constant(std::string_view text) {
  return object_of({{"type", "const_string"}, {"value", std::string(text)}});
}

json::Object sequence(json::Array parts) {
  return object_of({{"type", "sequence"}, {"elements", std::move(parts)}});
}

// What stands around arguments in a model's form, and how they are written.
struct CallForm {
  std::string begin;
  std::string_view style;
  std::string_view end;
};
CallForm form_of(CallSyntax syntax, std::string_view name) {
  switch (syntax) {
    case CallSyntax::json:
      return {cat(call_begin, "\n{\"name\": \"", name, "\", \"arguments\": "), "json",
              "}\n</tool_call>"};
    case CallSyntax::arg_tags:
      return {cat(call_begin, name, "\n"), "glm_xml", "\n</tool_call>"};
    case CallSyntax::parameters:
      return {cat(call_begin, "\n<function=", name, ">\n"), "qwen_xml",
              "\n</function>\n</tool_call>"};
  }
  MOTLEY_CHECK(false, "a syntax of calls without a form");
}

json::Object arguments_format(const Function& function, std::string_view style) {
  return object_of({{"type", "json_schema"},
                    {"json_schema", function.parameters},
                    {"style", std::string(style)}});
}

GrammarSpec structural_tag(json::Object format) {
  return {
      .kind = GrammarSpec::Kind::structural_tag,
      .text = json::write(object_of({{"type", "structural_tag"}, {"format", std::move(format)}}))};
}

// One call, whose head the model is told to have written.
ForcedCalls one_call(const Function& function, CallSyntax syntax) {
  CallForm form = form_of(syntax, function.name);
  if (syntax == CallSyntax::json)
    return {.opening = std::move(form.begin),
            .grammar = {.kind = GrammarSpec::Kind::json_schema,
                        .text = json::write(function.parameters)}};
  json::Array parts;
  parts.emplace_back(arguments_format(function, form.style));
  parts.emplace_back(constant(form.end));
  return {.opening = form.begin,
          .grammar = structural_tag(sequence(std::move(parts))),
          .read = Read::native,
          .told = form.begin};
}

// At least one call of any of the functions.
json::Object calls_of(json::Array tags, std::string_view separator, bool several) {
  return object_of({{"type", "tags_with_separator"},
                    {"tags", std::move(tags)},
                    {"separator", std::string(separator)},
                    {"at_least_one", true},
                    {"stop_after_first", !several}});
}

json::Object tag(std::string begin, json::Object arguments, std::string_view end) {
  return object_of(
      {{"begin", std::move(begin)}, {"content", std::move(arguments)}, {"end", std::string(end)}});
}

json::Array native_tags(std::span<const Function> functions, CallSyntax syntax) {
  json::Array tags;
  for (const Function& function : functions) {
    CallForm form = form_of(syntax, function.name);
    tags.emplace_back(tag(std::move(form.begin), arguments_format(function, form.style), form.end));
  }
  return tags;
}

ForcedCalls native_calls(std::span<const Function> functions, CallSyntax syntax, bool several) {
  return {.grammar = structural_tag(calls_of(native_tags(functions, syntax), "\n", several)),
          .read = Read::native};
}

// [{"name", "parameters"}, ...]
ForcedCalls listed_calls(std::span<const Function> functions, bool several) {
  json::Array tags;
  for (const Function& function : functions) {
    std::string begin = "{\"name\": ";
    json::append_string(begin, function.name);
    begin += ", \"parameters\": ";
    tags.emplace_back(tag(std::move(begin), arguments_format(function, "json"), "}"));
  }
  json::Array parts;
  parts.emplace_back(constant("["));
  parts.emplace_back(calls_of(std::move(tags), ", ", several));
  parts.emplace_back(constant("]"));
  return {.grammar = structural_tag(sequence(std::move(parts))), .read = Read::list};
}

// gpt-oss's head of a call to a function: its name and what follows it have special tokens.
constexpr std::string_view harmony_call = "<|channel|>commentary to=functions.";
constexpr std::string_view constrain_mark = "<|constrain|>";
constexpr std::string_view message_mark = "<|message|>";

// A call of any of the functions, behind `harmony_call`; nothing where the tokenizer has no marks
// for it. An answer of this form is one call: its end ends the answer.
std::optional<ForcedCalls> harmony_calls(std::span<const Function> functions,
                                         const text::Tokenizer& tokenizer) {
  const auto constrain = tokenizer.id_of(constrain_mark);
  const auto message = tokenizer.id_of(message_mark);
  if (!constrain || !message) return std::nullopt;
  const auto mark = [](std::int32_t id) { return object_of({{"type", "token"}, {"token", id}}); };
  json::Array calls;
  for (const Function& function : functions) {
    json::Array parts;
    parts.emplace_back(constant(cat(function.name, " ")));
    parts.emplace_back(mark(*constrain));
    parts.emplace_back(constant("json"));
    parts.emplace_back(mark(*message));
    parts.emplace_back(arguments_format(function, "json"));
    calls.emplace_back(sequence(std::move(parts)));
  }
  return ForcedCalls{
      .opening = std::string(harmony_call),
      .grammar = structural_tag(object_of({{"type", "or"}, {"elements", std::move(calls)}})),
      .read = Read::native,
      .told = std::string(harmony_call)};
}

ForcedCalls choose(const ChatCompletionRequest& request, const ChatFormat& format,
                   const text::Tokenizer& tokenizer, std::string_view prompt) {
  const std::vector<Function> functions = functions_of(request);
  const bool plain = std::ranges::all_of(functions, is_plain);
  const bool one = request.tool_use == ToolUse::one_named;
  if (format.harmony && plain && functions.size() == 1)
    return {.opening = cat(harmony_call, functions.front().name, " ", constrain_mark, "json",
                           message_mark),
            .grammar = {.kind = GrammarSpec::Kind::json_schema,
                        .text = json::write(functions.front().parameters)}};
  if (format.harmony && plain) {
    if (auto native = harmony_calls(functions, tokenizer)) return *std::move(native);
  }

  ForcedCalls forced;
  if (format.calls && plain && can_write(format, tokenizer, false)) {
    forced = one ? one_call(functions.front(), *format.calls)
                 : native_calls(functions, *format.calls, request.parallel_calls);
  } else if (one) {
    forced.grammar = {.kind = GrammarSpec::Kind::json_schema,
                      .text = json::write(functions.front().parameters)};
  } else {
    forced = listed_calls(functions, request.parallel_calls);
  }
  forced.opening.insert(0, opening_of_content(format, prompt));
  return forced;
}

}  // namespace

ForcedCalls force_calls(const ChatCompletionRequest& request, const ChatFormat& format,
                        const text::Tokenizer& tokenizer, std::string_view prompt) {
  MOTLEY_CHECK(request.inputs.tools && request.tool_use >= ToolUse::one_named,
               "calls that must be made, and tools for them");
  return choose(request, format, tokenizer, prompt);
}

std::optional<GrammarSpec> strict_calls(const ChatCompletionRequest& request,
                                        const ChatFormat& format,
                                        const text::Tokenizer& tokenizer) {
  if (request.tool_use != ToolUse::free || !format.calls || !can_write(format, tokenizer, true))
    return std::nullopt;
  const std::vector<Function> functions = functions_of(request);
  if (!std::ranges::any_of(functions, &Function::strict) ||
      !std::ranges::all_of(functions, is_plain))
    return std::nullopt;
  return structural_tag(object_of({{"type", "triggered_tags"},
                                   {"triggers", json::Array{std::string(call_begin)}},
                                   {"tags", native_tags(functions, *format.calls)},
                                   {"at_least_one", false},
                                   {"stop_after_first", !request.parallel_calls}}));
}

std::unique_ptr<OutputParser> make_forced_parser(const ForcedCalls& forced,
                                                 const ChatCompletionRequest& request,
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
  if (format.harmony) {
    parser = std::make_unique<HarmonyParser>();
  } else {
    parser = std::make_unique<TaggedParser>(TaggedParser::Options{
        .calls = format.calls, .schemas = ToolSchemas(*request.inputs.tools)});
  }
  const ParsedOutput nothing = parser->push(forced.told);
  MOTLEY_CHECK(nothing.empty(), "what was told begins a call and is no part of it");
  return parser;
}

}  // namespace motley::server
