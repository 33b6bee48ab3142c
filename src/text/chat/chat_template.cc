#include "text/chat/chat_template.h"

#include <algorithm>
#include <array>

#include "base/cat.h"
#include "text/chat/chat_messages.h"
#include "text/jinja/builtins/globals.h"
#include "text/jinja/template.h"

namespace motley::text {
namespace {

using jinja::Dict;
using jinja::Runtime;
using jinja::Value;

Error wrong(std::string what, std::string where) {
  return Error(ErrorCode::invalid_argument, std::move(what), std::move(where));
}

Result<Value> optional_input(Runtime& runtime, const std::optional<json::Value>& value) {
  if (!value) return Value::none();
  return from_json(runtime, *value, true);
}

// The conversation as the template's variables.
Result<Dict*> variables(Runtime& runtime, const ChatInputs& inputs, const TemplateHabits& habits) {
  auto& context = runtime.heap().make<Dict>();
  const auto set = [&](std::string_view name, const Value& value) {
    return context.set(runtime, runtime.text(name), value);
  };
  MOTLEY_TRY_VOID(add_globals(runtime, context));
  for (const auto& [name, text] : inputs.special_tokens)
    MOTLEY_TRY_VOID(set(name, runtime.text(text)));
  for (const auto& [name, value] : inputs.kwargs.members()) {
    constexpr std::array<std::string_view, 4> own = {"messages", "tools", "documents",
                                                     "add_generation_prompt"};
    if (std::ranges::find(own, name) != own.end())
      return wrong(cat("an argument of the template named ", quote(name)), "chat_template_kwargs");
    MOTLEY_TRY(const Value argument, from_json(runtime, value, true));
    MOTLEY_TRY_VOID(set(name, argument));
  }
  MOTLEY_TRY(const Value messages, prepare_messages(runtime, inputs.messages, habits));
  MOTLEY_TRY_VOID(set("messages", messages));
  MOTLEY_TRY(const Value tools, optional_input(runtime, inputs.tools));
  MOTLEY_TRY_VOID(set("tools", tools));
  MOTLEY_TRY(const Value documents, optional_input(runtime, inputs.documents));
  MOTLEY_TRY_VOID(set("documents", documents));
  MOTLEY_TRY_VOID(set("add_generation_prompt", Value::boolean(inputs.add_generation_prompt)));
  return &context;
}

Result<MarkedText> render_with(Runtime& runtime, const jinja::Template& what,
                               const ChatInputs& inputs, const TemplateHabits& habits) {
  MOTLEY_TRY(const Dict* const context, variables(runtime, inputs, habits));
  return what.render(runtime, *context);
}

Result<MarkedText> render_as(const jinja::Template& what, const ChatInputs& inputs,
                             const RenderLimits& limits, const TemplateHabits& habits) {
  Runtime runtime(limits, inputs.now);
  return render_with(runtime, what, inputs, habits);
}

TemplateHabits habits_of(const jinja::Template& what) {
  return find_habits([&](const ChatInputs& inputs, const TemplateHabits& habits) -> Probed {
    Runtime runtime(probe_limits, inputs.now);
    auto text = render_with(runtime, what, inputs, habits);
    return {std::move(text), runtime.has_raised()};
  });
}

}  // namespace

struct ChatTemplate::Compiled {
  jinja::Template what;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Compiled> compiled)
    : compiled_(std::move(compiled)), habits_(habits_of(compiled_->what)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::compile(std::string_view source, std::string_view where) {
  MOTLEY_TRY(jinja::Template what, jinja::Template::compile(source, std::string(where)));
  return ChatTemplate(std::make_unique<Compiled>(std::move(what)));
}

Result<MarkedText> ChatTemplate::render(const ChatInputs& inputs,
                                        const RenderLimits& limits) const {
  auto text = render_as(compiled_->what, inputs, limits, habits_);
  if (text.ok() || !has_tool_calls(inputs.messages)) return text;
  // These calls differ from the probe's, so the other form may be the right one.
  TemplateHabits other = habits_;
  other.wants_argument_strings = !other.wants_argument_strings;
  auto again = render_as(compiled_->what, inputs, limits, other);
  return again.ok() ? std::move(again) : std::move(text);
}

}  // namespace motley::text
