#include "text/chat/chat_messages.h"

#include <algorithm>
#include <array>

#include "base/cat.h"
#include "text/jinja/template.h"
#include "text/jinja/values/represent.h"

namespace motley::text {
namespace {

using jinja::Dict;
using jinja::Kind;
using jinja::Runtime;
using jinja::Value;

Error wrong(std::string what, std::string where, std::string fix) {
  return Error(ErrorCode::invalid_argument, std::move(what), std::move(where), std::move(fix));
}

// The value of a key; missing if it is not there.
Value member(const Dict& dict, std::string_view key) {
  const Value* const found = dict.find(key);
  return found == nullptr ? Value() : *found;
}

bool is_given(const Value& value) { return !value.is(Kind::missing) && !value.is(Kind::none); }

Result<void> set(Runtime& runtime, Dict& dict, std::string_view key, const Value& value) {
  return dict.set(runtime, runtime.text(key), value);
}

// A role that is one of a few known words comes from the protocol and not from the user, so a
// template may build a special token of it ('<|' + role + '|>'). Any other word may not, or users
// could write such tokens.
Result<void> own_role(Runtime& runtime, Dict& message) {
  constexpr std::array<std::string_view, 6> known = {"system",    "developer", "user",
                                                     "assistant", "tool",      "function"};
  const Value role = member(message, "role");
  if (!role.is(Kind::string)) return {};
  const auto found = std::ranges::find(known, role.string().text());
  return found == known.end() ? Result<void>()
                              : set(runtime, message, "role", runtime.text(*found));
}

// The message with its reasoning under the names that templates read, in the order in which
// transformers adds them, which is visible if a template prints whole messages.
Result<Dict*> with_reasoning(Runtime& runtime, Dict& message) {
  Value reasoning;
  for (const std::string_view name : {"reasoning_content", "thinking", "reasoning"}) {
    if (!is_given(reasoning)) reasoning = member(message, name);
  }
  if (!is_given(reasoning)) return &message;
  auto& copy = runtime.heap().make<Dict>();
  MOTLEY_TRY_VOID(set(runtime, copy, "thinking", reasoning));
  for (const auto& [key, value] : message.entries()) MOTLEY_TRY_VOID(copy.set(runtime, key, value));
  MOTLEY_TRY_VOID(set(runtime, copy, "reasoning_content", reasoning));
  return &copy;
}

// The text of one part of a content.
Result<const jinja::String*> part_text(const Value& part, const std::string& where) {
  if (part.is(Kind::string)) return &part.string();
  if (!part.is(Kind::dict))
    return wrong("a content part that is no object", where,
                 "send {\"type\": \"text\", \"text\": ...}");
  const Value type = member(part.dict(), "type");
  const Value text = member(part.dict(), "text");
  const bool is_text =
      type.is(Kind::missing) || (type.is(Kind::string) && type.string().text() == "text");
  if (!is_text || !text.is(Kind::string)) {
    const std::string name =
        type.is(Kind::string) ? quote(type.string().text()) : "text without text";
    return wrong(cat("a content part of type ", name), where, "only parts of text are taken");
  }
  return &text.string();
}

// The text of an assistant's refusal is treated like any other text.
Result<void> refusals_as_text(Runtime& runtime, const Value& parts) {
  for (Value& part : parts.sequence().items) {
    if (!part.is(Kind::dict)) continue;
    const Value type = member(part.dict(), "type");
    const Value refusal = member(part.dict(), "refusal");
    if (!type.is(Kind::string) || type.string().text() != "refusal" || !refusal.is(Kind::string))
      continue;
    auto& text = runtime.heap().make<Dict>();
    MOTLEY_TRY_VOID(set(runtime, text, "type", runtime.text("text")));
    MOTLEY_TRY_VOID(set(runtime, text, "text", refusal));
    part = Value::object(Kind::dict, &text);
  }
  return {};
}

// Joins the texts of parts. Refuses parts that are not text.
Result<Value> joined_parts(Runtime& runtime, const Value& parts, const std::string& where) {
  MarkedText joined;
  for (const Value& part : parts.sequence().items) {
    MOTLEY_TRY(const jinja::String* const text, part_text(part, where));
    joined.append(text->marked);
  }
  return runtime.text(std::move(joined));
}

// A list of one part.
Result<Value> as_part(Runtime& runtime, const Value& text) {
  auto& part = runtime.heap().make<Dict>();
  MOTLEY_TRY_VOID(set(runtime, part, "type", runtime.text("text")));
  MOTLEY_TRY_VOID(set(runtime, part, "text", text));
  return runtime.list({Value::object(Kind::dict, &part)});
}

Result<void> prepare_content(Runtime& runtime, Dict& message, const TemplateHabits& habits,
                             const std::string& where) {
  Value content = member(message, "content");
  const bool has_calls = is_given(member(message, "tool_calls"));
  if (content.is(Kind::none) || (content.is(Kind::missing) && has_calls)) {
    if (habits.wants_null_content && has_calls)
      return set(runtime, message, "content", Value::none());
    content = runtime.text("");
  }
  const bool is_list = content.is(Kind::list);
  if (!is_list && !content.is(Kind::string)) return {};
  const Value role = member(message, "role");
  const std::string_view role_name = role.is(Kind::string) ? role.string().text() : "";
  Value text = content;
  if (is_list) {
    if (role_name == "assistant") MOTLEY_TRY_VOID(refusals_as_text(runtime, content));
    MOTLEY_TRY(text, joined_parts(runtime, content, cat(where, ".content")));
  }
  switch (habits.content.of(role_name)) {
    case ContentForm::both:
      return set(runtime, message, "content", content);
    case ContentForm::text:
      return set(runtime, message, "content", text);
    case ContentForm::parts:
      if (is_list) return {};
      break;
    case ContentForm::one_part:
      break;
  }
  MOTLEY_TRY(const Value parts, as_part(runtime, text));
  return set(runtime, message, "content", parts);
}

// Arguments in the form that the template expects. Text that is no JSON object is unchanged.
Result<Value> arguments_as(Runtime& runtime, const Value& arguments, bool as_string) {
  if (as_string) {
    if (!arguments.is(Kind::dict)) return arguments;
    return jinja::to_json(runtime, arguments, {});
  }
  if (!arguments.is(Kind::string)) return arguments;
  const std::string_view text = arguments.string().text();
  // Models write nothing for a call without arguments.
  const bool is_blank = text.find_first_not_of(" \t\r\n") == std::string_view::npos;
  const auto parsed = json::parse(is_blank ? "{}" : text, "arguments", {.last_of_key = true});
  if (!parsed.ok() || parsed->if_object() == nullptr) return arguments;
  return from_json(runtime, *parsed, true);
}

Result<void> prepare_call(Runtime& runtime, const Value& call, bool as_string) {
  if (!call.is(Kind::dict)) return {};
  // {"function": {"name", "arguments"}}, or without the outer object.
  const Value function = member(call.dict(), "function");
  Dict& holder = function.is(Kind::dict) ? function.dict() : call.dict();
  const Value arguments = member(holder, "arguments");
  if (!is_given(arguments)) return {};
  MOTLEY_TRY(const Value wanted, arguments_as(runtime, arguments, as_string));
  return set(runtime, holder, "arguments", wanted);
}

Result<void> prepare_calls(Runtime& runtime, const Dict& message, const TemplateHabits& habits) {
  const Value calls = member(message, "tool_calls");
  if (!calls.is(Kind::list)) return {};
  for (const Value& call : calls.sequence().items)
    MOTLEY_TRY_VOID(prepare_call(runtime, call, habits.wants_argument_strings));
  return {};
}

}  // namespace

Result<Value> prepare_messages(Runtime& runtime, const json::Value& messages,
                               const TemplateHabits& habits) {
  if (messages.if_array() == nullptr)
    return wrong(cat(json::describe(messages.kind()), " instead of a list"), "messages",
                 "send a list of objects");
  MOTLEY_TRY(const Value values, from_json(runtime, messages, true));
  auto& items = values.sequence().items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string where = cat("messages[", i, "]");
    if (!items[i].is(Kind::dict))
      return wrong(cat(type_name(items[i]), " instead of an object"), where,
                   "send an object with role and content");
    MOTLEY_TRY(Dict* const message, with_reasoning(runtime, items[i].dict()));
    items[i] = Value::object(Kind::dict, message);
    MOTLEY_TRY_VOID(own_role(runtime, *message));
    MOTLEY_TRY_VOID(prepare_content(runtime, *message, habits, where));
    MOTLEY_TRY_VOID(prepare_calls(runtime, *message, habits));
  }
  return values;
}

bool has_tool_calls(const json::Value& messages) {
  if (messages.if_array() == nullptr) return false;
  return std::ranges::any_of(*messages.if_array(), [](const json::Value& message) {
    const json::Object* const object = message.if_object();
    return object != nullptr && object->find("tool_calls") != nullptr;
  });
}

}  // namespace motley::text
