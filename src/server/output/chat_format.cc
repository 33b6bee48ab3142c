#include "server/output/chat_format.h"

#include <ctime>
#include <string>

#include "server/output/harmony_parser.h"
#include "server/output/tag_search.h"
#include "server/output/tagged_parser.h"

namespace motley::server {
namespace {

// A conversation that has all that a template may mark.
constexpr std::string_view with_call = R"([
  {"role": "user", "content": "question"},
  {"role": "assistant", "content": "", "reasoning_content": "thought", "tool_calls": [
    {"id": "call_0", "type": "function",
     "function": {"name": "probe_function", "arguments": {"probe_key": "probe_value"}}}]}])";
constexpr std::string_view with_reasoning = R"([
  {"role": "user", "content": "question"},
  {"role": "assistant", "content": "answer", "reasoning_content": "thought"}])";
constexpr std::string_view question = R"([{"role": "user", "content": "question"}])";
constexpr std::string_view tools = R"([{"type": "function", "function": {
  "name": "probe_function", "description": "probe", "parameters": {
    "type": "object", "properties": {"probe_key": {"type": "string"}}}}}])";

// The conversation as the template writes it; nothing where it refuses.
std::string render(const text::ModelText& model, std::string_view messages, bool has_tools,
                   bool prompt) {
  text::ChatInputs inputs{.messages = json::parse(messages, "probe").value(),
                          .add_generation_prompt = prompt};
  if (has_tools) inputs.tools = json::parse(tools, "probe").value();
  const auto chat = model.chat(std::move(inputs), false);
  return chat.ok() ? chat->text.text : std::string();
}

// What the template adds for the last message alone, as far as that can be told: behind the
// question, and not where it explains to the model how calls are written.
std::string_view behind_question(std::string_view text) {
  const std::size_t at = text.rfind("question");
  return at == std::string_view::npos ? std::string_view() : text.substr(at);
}

bool ends_with_tag(std::string_view prompt, std::string_view tag) {
  return prompt.substr(0, trailing_space(prompt)).ends_with(tag);
}

bool holds(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

std::vector<std::string_view> ChatFormat::marks() const {
  std::vector<std::string_view> marks;
  const auto add = [&](std::initializer_list<std::string_view> more) {
    for (const std::string_view mark : more) marks.push_back(mark);
  };
  if (harmony)
    add({"<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>", "<|return|>",
         "<|constrain|>"});
  if (think_tags) add({"<think>", "</think>"});
  if (calls) add({"<tool_call>", "</tool_call>"});
  if (calls == CallSyntax::arg_tags)
    add({"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"});
  return marks;
}

ChatFormat find_chat_format(const text::ModelText& model) {
  const std::string calling = render(model, with_call, true, false);
  const std::string_view call = behind_question(calling);
  ChatFormat format;
  if (holds(call, "<|channel|>") && holds(call, "to=functions.probe_function")) {
    format.harmony = true;
    return format;
  }
  if (holds(call, "<tool_call>")) {
    if (holds(call, "<arg_key>probe_key</arg_key>"))
      format.calls = CallSyntax::arg_tags;
    else if (holds(call, "<function=probe_function>"))
      format.calls = CallSyntax::parameters;
    else if (holds(call, "\"probe_function\""))
      format.calls = CallSyntax::json;
  }
  format.think_tags =
      holds(call, "<think>") ||
      holds(behind_question(render(model, with_reasoning, false, false)), "<think>") ||
      holds(behind_question(render(model, question, false, true)), "<think>");
  return format;
}

std::unique_ptr<OutputParser> make_output_parser(const ChatFormat& format, std::string_view prompt,
                                                 const json::Value* tools_given) {
  if (format.harmony) return std::make_unique<HarmonyParser>();
  TaggedParser::Options options{.reasoning = format.think_tags};
  options.begins_reasoning = format.think_tags && ends_with_tag(prompt, "<think>");
  // A prompt that has the reasoning behind it already (an empty one, where none is wanted).
  if (ends_with_tag(prompt, "</think>")) options.reasoning = false;
  if (tools_given != nullptr) {
    options.calls = format.calls;
    options.schemas = ToolSchemas(*tools_given);
  }
  return std::make_unique<TaggedParser>(std::move(options));
}

std::unique_ptr<OutputParser> make_plain_parser() {
  return std::make_unique<TaggedParser>(TaggedParser::Options{});
}

std::string_view opening_of_content(const ChatFormat& format, std::string_view prompt) {
  if (format.harmony) return "<|channel|>final<|message|>";
  if (format.think_tags && ends_with_tag(prompt, "<think>")) return "\n</think>\n\n";
  return {};
}

}  // namespace motley::server
