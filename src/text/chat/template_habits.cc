#include "text/chat/template_habits.h"

#include <string>

#include "base/cat.h"
#include "base/json/json.h"
#include "text/chat/chat_template.h"

namespace motley::text {
namespace {

// Marks that no template contains.
constexpr std::string_view first_mark = "probe-mark-one";
constexpr std::string_view second_mark = "probe-mark-two";
// a key of parts: shows whether whole parts are printed
constexpr std::string_view part_mark = "probe_part";
constexpr std::string_view function_mark = "probe_function";
constexpr std::string_view key_mark = "probe_key";

bool has(const Probed& probed, std::string_view piece) {
  return probed.text.ok() && probed.text->text.find(piece) != std::string::npos;
}

json::Value json_of(std::string_view text) { return json::parse(text, "a probe").value(); }

ChatInputs probe(std::string_view messages) {
  ChatInputs inputs;
  inputs.messages = json_of(messages);
  for (const std::string_view name : {"bos_token", "eos_token", "pad_token", "unk_token"})
    inputs.special_tokens.emplace_back(name, "");
  inputs.now.tm_year = 100;
  inputs.now.tm_mday = 1;
  return inputs;
}

// --------------------------------------------------------------------------------- forms of
// content

std::string message(std::string_view role, std::string_view content) {
  return cat(R"({"role": ")", role, R"(", "content": )", content, "}");
}

std::string part(std::string_view text) {
  return cat(R"({"type": "text", "text": ")", text, R"(", ")", part_mark, R"(": true})");
}

// A call and its result, with an id that Mistral's templates accept.
std::string call_message(std::string_view content) {
  return cat(R"({"role": "assistant", "content": )", content,
             R"(, "tool_calls": [{"id": "abcdef123", "type": "function", "function": {"name": ")",
             function_mark, R"(", "arguments": "{\")", key_mark, R"(\": \")", first_mark,
             R"(\"}"}}]})");
}

std::string answer_message(std::string_view content) {
  return cat(R"({"role": "tool", "tool_call_id": "abcdef123", "name": ")", function_mark,
             R"(", "content": )", content, "}");
}

json::Value probe_tools() {
  return json_of(R"([{"type": "function", "function": {"name": "f", "description": "d",
      "parameters": {"type": "object", "properties": {"k": {"type": "string", "description": "d"}},
      "required": ["k"]}}}])");
}

constexpr std::string_view any_content = R"("q")";

// Conversations around a message whose content is JSON text.
ChatInputs user_probe(std::string_view content) {
  return probe(cat("[", message("user", content), "]"));
}
ChatInputs system_probe(std::string_view content) {
  return probe(cat("[", message("system", content), ",", message("user", any_content), "]"));
}
ChatInputs assistant_probe(std::string_view content) {
  return probe(cat("[", message("user", any_content), ",", message("assistant", content), ",",
                   message("user", any_content), "]"));
}
ChatInputs tool_answer_probe(std::string_view content) {
  ChatInputs inputs = probe(cat("[", message("user", any_content), ",", call_message("null"), ",",
                                answer_message(content), "]"));
  inputs.tools = probe_tools();
  return inputs;
}

// Finds the form whose text is rendered completely and unchanged. `form` is the role's in `habits`,
// which has what is known of the other roles.
void find_form(RenderProbe render, TemplateHabits habits,
               ChatInputs (*conversation)(std::string_view),
               ContentForm TemplateHabits::ContentForms::* role, ContentForm& form) {
  habits.content.*role = ContentForm::both;
  const std::string one = cat("[", part(cat(first_mark, second_mark)), "]");
  const std::string two = cat("[", part(first_mark), ",", part(second_mark), "]");
  const auto shows = [&](std::string_view content) {
    const Probed probed = render(conversation(content), habits);
    return has(probed, first_mark) && has(probed, second_mark) && !has(probed, part_mark);
  };
  const bool text = shows(cat("\"", first_mark, second_mark, "\""));
  const bool parts = shows(two);
  form = text && parts                   ? ContentForm::both
         : parts                         ? ContentForm::parts
         : !text && !parts && shows(one) ? ContentForm::one_part
                                         : ContentForm::text;
}

// -------------------------------------------------------------------------------------- tool calls

// Whether the call is rendered correctly: not lost, not as Python's repr, not as JSON within JSON,
// and without quotes escaped for HTML.
bool shows_call(const Probed& probed) {
  return has(probed, function_mark) && has(probed, key_mark) && has(probed, first_mark) &&
         !has(probed, cat("{'", key_mark)) && !has(probed, cat("{\\\"", key_mark)) &&
         !has(probed, "&#34;");
}

// A template that shows no calls may reject a message that has nothing else.
bool refuses_null(RenderProbe render, const TemplateHabits& habits) {
  const ChatInputs inputs =
      probe(cat("[", message("user", any_content), ",", call_message("null"), "]"));
  TemplateHabits null = habits;
  null.wants_null_content = true;
  return render(inputs, null).raised && render(inputs, habits).text.ok();
}

void find_call_habits(RenderProbe render, TemplateHabits& habits) {
  const ChatInputs inputs = tool_answer_probe(R"("r")");
  for (const bool null_content : {false, true}) {
    for (const bool strings : {false, true}) {
      TemplateHabits tried = habits;
      tried.wants_argument_strings = strings;
      tried.wants_null_content = null_content;
      if (!shows_call(render(inputs, tried))) continue;
      habits = tried;
      return;
    }
  }
  habits.wants_null_content = refuses_null(render, habits);
}

}  // namespace

ContentForm TemplateHabits::ContentForms::of(std::string_view role) const {
  if (role == "system" || role == "developer") return system;
  if (role == "assistant") return assistant;
  return role == "tool" || role == "function" ? tool : user;
}

TemplateHabits find_habits(RenderProbe render) {
  using Forms = TemplateHabits::ContentForms;
  TemplateHabits habits;
  Forms& forms = habits.content;
  find_form(render, habits, user_probe, &Forms::user, forms.user);
  // Other roles probably have the form of the user's messages; checked below.
  forms.system = forms.assistant = forms.tool = forms.user;
  find_form(render, habits, system_probe, &Forms::system, forms.system);
  find_form(render, habits, assistant_probe, &Forms::assistant, forms.assistant);
  find_call_habits(render, habits);
  find_form(render, habits, tool_answer_probe, &Forms::tool, forms.tool);
  return habits;
}

}  // namespace motley::text
