#include "serving/forms/chat_format.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/cat.h"
#include "base/function_ref.h"
#include "serving/forms/form_parser.h"
#include "serving/forms/harmony_parser.h"
#include "serving/forms/tag_search.h"

namespace motley::serving {
namespace {

// Probe conversations that contain everything a template may mark. Ids have the forms that
// templates require: Kimi's have the function's name, Mistral's have nine characters.
constexpr std::array<std::string_view, 2> call_ids = {"functions.probe_function:0", "abcdef123"};
constexpr std::string_view with_reasoning = R"([
  {"role": "user", "content": "question"},
  {"role": "assistant", "content": "answer", "reasoning_content": "thought"}])";
constexpr std::string_view question = R"([{"role": "user", "content": "question"}])";
constexpr std::string_view by_system = R"([
  {"role": "system", "content": "instruction"}, {"role": "user", "content": "question"}])";
constexpr std::string_view by_developer = R"([
  {"role": "developer", "content": "instruction"}, {"role": "user", "content": "question"}])";
constexpr std::string_view tools = R"([{"type": "function", "function": {
  "name": "probe_function", "description": "probe", "parameters": {
    "type": "object", "properties": {"probe_key": {"type": "string", "description": "probe"}}}}}])";
constexpr std::string_view thinking = R"({"enable_thinking": true, "thinking": true})";

std::string with_call(std::string_view id) {
  return cat(R"([{"role": "user", "content": "question"},
  {"role": "assistant", "content": "", "reasoning_content": "thought", "tool_calls": [
    {"id": ")",
             id, R"(", "type": "function",
     "function": {"name": "probe_function", "arguments": {"probe_key": "probe_value"}}}]}])");
}

using RenderChat = FunctionRef<Result<text::MarkedText>(text::ChatInputs)>;

// The rendered conversation; empty if the template refuses it.
std::string render(RenderChat render_chat, std::string_view messages, bool has_tools, bool prompt,
                   bool thinks = false) {
  text::ChatInputs inputs{.messages = json::parse(messages, "probe").value(),
                          .add_generation_prompt = prompt};
  if (has_tools) inputs.tools = json::parse(tools, "probe").value();
  if (thinks) inputs.kwargs = *json::parse(thinking, "probe").value().if_object();
  const auto chat = render_chat(std::move(inputs));
  return chat.ok() ? chat->text : std::string();
}

// What the template adds for the last message, as far as it can be separated: after the question,
// and outside of explanations how to write calls.
std::string_view behind_question(std::string_view text) {
  const std::size_t at = text.rfind("question");
  return at == std::string_view::npos ? std::string_view() : text.substr(at + 8);
}

bool ends_with_tag(std::string_view prompt, std::string_view tag) {
  return prompt.substr(0, trailing_space(prompt)).ends_with(tag);
}

bool holds(std::string_view text, std::string_view part) {
  return !part.empty() && text.find(part) != std::string_view::npos;
}

// ------------------------------------------------------------------------------------------- calls

// Whether the call's body has the form's shape: parsers accept other bodies between its marks, too.
bool looks_like(const ToolForm& form, std::string_view text) {
  if (!form.starts_lines && !form.begin.empty() && !holds(text, form.begin)) return false;
  switch (form.body) {
    case CallBody::harmony:
      return holds(text, "<|channel|>") && holds(text, "to=functions.probe_function");
    case CallBody::json:
      return holds(text, "\"probe_function\"");
    case CallBody::named:
      // If the name is the last part, something else precedes it.
      return !holds(text, "\"probe_function\"") &&
             (form.name != "deepseek_v3" || holds(text, cat(form.separators[0], "probe_function")));
    case CallBody::pairs:
      return holds(text, form.pairs->before_key);
    case CallBody::python:
      return holds(text, "probe_function(");
    case CallBody::gemma:
      return holds(text, "call:probe_function{");
  }
  return false;
}

bool reads_call(const ToolForm& form, std::string_view text) {
  if (form.body == CallBody::harmony) return true;
  FormParser parser({.calls = &form, .tools = ToolSchemas(json::parse(tools, "probe").value())});
  ParsedOutput output = parser.push(text);
  output.append(parser.finish());
  if (output.calls.size() != 1 || output.calls[0].name != "probe_function") return false;
  const auto arguments = json::parse(output.calls[0].arguments, "probe");
  return arguments.ok() && json::write(*arguments) == R"({"probe_key":"probe_value"})";
}

// Templates that do not write calls back may explain them, or leave that to the tokenizer.
const ToolForm* explained_form(RenderChat render_chat, const text::Tokenizer& tokenizer) {
  const std::string prompt = render(render_chat, question, true, true);
  for (const ToolForm& form : tool_forms()) {
    if (form.begin.empty() || form.starts_lines) continue;
    const bool shown = holds(prompt, form.begin) &&
                       (form.body != CallBody::pairs || holds(prompt, form.pairs->before_key));
    // No other family has this mark as a token.
    const bool known = form.begin.starts_with("<|tool_call") && holds(prompt, "probe_function") &&
                       tokenizer.id_of(form.begin).has_value();
    if (shown || known) return &form;
  }
  return nullptr;
}

const ToolForm* find_calls(RenderChat render_chat, const text::Tokenizer& tokenizer) {
  for (const std::string_view id : call_ids) {
    const std::string chat = render(render_chat, with_call(id), true, false);
    const std::string_view text = behind_question(chat);
    for (const ToolForm& form : tool_forms()) {
      if (looks_like(form, text) && reads_call(form, text)) return &form;
    }
  }
  return explained_form(render_chat, tokenizer);
}

// --------------------------------------------------------------------------------------- reasoning

const ReasoningForm* find_reasoning(RenderChat render_chat) {
  const std::string answer = render(render_chat, with_reasoning, false, false);
  const std::string call = render(render_chat, with_call(call_ids[0]), true, false);
  const std::string prompt = render(render_chat, question, false, true);
  const std::string thought = render(render_chat, question, false, true, true);
  for (const ReasoningForm& form : reasoning_forms()) {
    // Marks that are not words of a language identify the form wherever they occur.
    const bool distinct = form.begin != "<think>";
    const bool shown = std::ranges::any_of(
        std::array<std::string_view, 4>{answer, call, prompt, thought}, [&](std::string_view text) {
          return holds(distinct ? text : behind_question(text), form.begin);
        });
    const bool answers = form.answer_begin.empty() || holds(answer, form.answer_begin);
    if (shown && answers) return &form;
  }
  return nullptr;
}

ChatFormat find_format(RenderChat render_chat, const text::Tokenizer& tokenizer) {
  ChatFormat format;
  const auto shows = [&](std::string_view messages) {
    return holds(render(render_chat, messages, false, false), "instruction");
  };
  format.lacks_developer = shows(by_system) && !shows(by_developer);
  format.calls = find_calls(render_chat, tokenizer);
  if (format.is_harmony()) return format;
  format.reasoning = find_reasoning(render_chat);
  // Its template shows reasoning only in conversations that have it in their content.
  if (format.reasoning == nullptr && format.calls == find_tool_form("hunyuan"))
    format.reasoning = find_reasoning_form("hunyuan");
  return format;
}

FormParser::Options options_for(const ChatFormat& format, const AnswerParts& parts) {
  FormParser::Options options{.one_call = parts.one_call};
  if (parts.tools == nullptr) return options;
  options.calls = format.calls;
  options.tools = ToolSchemas(*parts.tools);
  return options;
}

template <typename Find>
Result<void> check_name(std::string_view option, const std::string& name, Find find,
                        std::string_view known) {
  if (name.empty() || name == "none" || find(name) != nullptr) return {};
  return Error(ErrorCode::invalid_argument, cat("no form is called '", name, "'"),
               std::string(option), cat("one of ", known, ", none"));
}

template <typename Forms>
std::string names_of(const Forms& forms) {
  std::string names;
  for (const auto& form : forms) names += cat(names.empty() ? "" : ", ", form.name);
  return names;
}

}  // namespace

std::vector<std::string_view> ChatFormat::marks() const {
  std::vector<std::string_view> all;
  if (calls != nullptr) all = calls->marks();
  if (reasoning != nullptr) {
    const auto more = reasoning->marks();
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

std::vector<std::int32_t> ChatFormat::visible_tokens(std::span<const SpecialToken> special) const {
  std::vector<std::int32_t> visible;
  const auto marks = this->marks();
  for (const SpecialToken& token : special) {
    if (std::ranges::any_of(marks, [&](std::string_view mark) { return holds(mark, token.text); }))
      visible.push_back(token.id);
  }
  return visible;
}

Result<void> FormNames::check() const {
  MOTLEY_TRY_VOID(check_name("--tool-form", calls, find_tool_form, names_of(tool_forms())));
  return check_name("--reasoning-form", reasoning, find_reasoning_form,
                    names_of(reasoning_forms()));
}

ChatFormat find_chat_format(const text::ModelText& model, const FormNames& names,
                            const std::string& adapter) {
  ChatFormat format = find_format(
      [&](text::ChatInputs inputs) {
        inputs.adapter = adapter;
        return model.render(std::move(inputs));
      },
      model.tokenizer());
  if (!names.calls.empty()) format.calls = find_tool_form(names.calls);
  if (!names.reasoning.empty()) format.reasoning = find_reasoning_form(names.reasoning);
  return format;
}

ChatFormat find_chat_format(const text::ModelText& model, const text::ChatTemplate& chat_template) {
  return find_format(
      [&](text::ChatInputs inputs) {
        return model.render(std::move(inputs), chat_template, text::probe_limits);
      },
      model.tokenizer());
}

bool shows_tools(const text::ModelText& model) {
  const auto render_chat = [&](text::ChatInputs inputs) { return model.render(std::move(inputs)); };
  return holds(render(render_chat, question, true, true), "probe_function");
}

ChatFormat format_for_prompt(ChatFormat format, std::string_view prompt) {
  if (format.is_harmony()) return format;
  const auto ends = [&](const ReasoningForm& form) { return ends_with_tag(prompt, form.begin); };
  if (format.reasoning != nullptr && ends(*format.reasoning)) return format;
  // The plainest form with the same marks comes last.
  for (const ReasoningForm& form : reasoning_forms()) {
    if (form.answer_begin.empty() && ends(form)) format.reasoning = &form;
  }
  return format;
}

json::Value developer_as_system(const json::Value& messages) {
  json::Array list;
  for (const json::Value& message : *messages.if_array()) {
    json::Object copy;
    for (const json::Member& member : message.if_object()->members()) {
      const std::string* const text = member.value.if_string();
      const bool developer = member.key == "role" && text != nullptr && *text == "developer";
      copy.add(member.key, developer ? json::Value("system") : member.value);
    }
    list.emplace_back(std::move(copy));
  }
  return list;
}

std::unique_ptr<OutputParser> make_output_parser(const ChatFormat& format, std::string_view prompt,
                                                 const AnswerParts& parts) {
  if (format.is_harmony()) return std::make_unique<HarmonyParser>();
  FormParser::Options options = options_for(format, parts);
  options.reasoning = format.reasoning;
  if (format.reasoning != nullptr) {
    options.begins_reasoning = ends_with_tag(prompt, format.reasoning->begin);
    // The prompt already ends with reasoning (empty, if none is wanted).
    options.reasoned = ends_with_tag(prompt, format.reasoning->end);
  }
  return std::make_unique<FormParser>(std::move(options));
}

std::unique_ptr<OutputParser> make_continuing_parser(const ChatFormat& format, bool in_reasoning,
                                                     bool is_blank, const AnswerParts& parts) {
  if (format.is_harmony()) {
    auto parser = std::make_unique<HarmonyParser>();
    parser->push("<|channel|>final<|message|>");
    return parser;
  }
  FormParser::Options options = options_for(format, parts);
  if (in_reasoning || is_blank) options.reasoning = format.reasoning;
  options.begins_reasoning = in_reasoning && format.reasoning != nullptr;
  auto parser = std::make_unique<FormParser>(std::move(options));
  // White space that follows belongs to the text before.
  if (in_reasoning && !is_blank) parser->push("x");
  return parser;
}

std::unique_ptr<OutputParser> make_plain_parser() {
  return std::make_unique<FormParser>(FormParser::Options{});
}

std::string opening_of_content(const ChatFormat& format, std::string_view prompt) {
  if (format.is_harmony()) return "<|channel|>final<|message|>";
  if (format.reasoning != nullptr && ends_with_tag(prompt, format.reasoning->begin))
    return cat("\n", format.reasoning->end, "\n\n");
  return {};
}

}  // namespace motley::serving
