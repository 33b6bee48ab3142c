#include "serving/prompts/open_message.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "serving/prompts/content_text.h"

namespace motley::serving {
namespace {

constexpr std::string_view field = "continue_final_message";
// Followed by a blank: a template that strips it strips the end of every message.
constexpr std::string_view mark = "motley-end-of-the-open-message";
constexpr std::string_view blanks = " \t\r\n";

Error wrong_message(std::string what, std::string fix) {
  return {ErrorCode::invalid_argument, std::move(what), std::string(field), std::move(fix)};
}

// A copy of the object with one value replaced.
json::Object with(const json::Object& object, std::string_view key, json::Value value) {
  std::vector<json::Member> members;
  bool found = false;
  for (const json::Member& member : object.members()) {
    const bool is_it = member.key == key;
    found = found || is_it;
    members.push_back({member.key, is_it ? value : member.value});
  }
  if (!found) members.push_back({std::string(key), std::move(value)});
  return json::Object::make(std::move(members)).value();
}

std::string_view trimmed_left(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  return text;
}

std::string_view trimmed_right(std::string_view text) {
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

}  // namespace

Result<OpenMessage> OpenMessage::begin(text::ChatInputs& inputs) {
  const json::Array& messages = *inputs.messages.if_array();
  const json::Object& last = *messages.back().if_object();
  if (last.find_set("tool_calls") != nullptr)
    return wrong_message("the last message makes calls", "let it end with text");
  std::optional<std::string> text = content_text(last.find_set("content"));
  if (!text)
    return wrong_message("the last message has parts that are no text", "give its content as text");
  json::Array marked(messages.begin(), messages.end() - 1);
  marked.emplace_back(with(last, "content", cat(*text, mark, " ")));
  inputs.messages = std::move(marked);
  inputs.add_generation_prompt = false;
  return OpenMessage(*std::move(text));
}

Result<void> OpenMessage::cut(text::MarkedText& conversation, const ReasoningForm* reasoning) {
  const std::size_t at = conversation.text.rfind(mark);
  if (at == std::string::npos)
    return wrong_message("the model's template does not write the end of the last message",
                         "leave it out");
  const bool keeps_blanks = conversation.text.substr(at + mark.size()).starts_with(' ');
  std::string_view before = std::string_view(conversation.text).substr(0, at);
  std::string_view text = trimmed_left(text_);
  if (!keeps_blanks) {
    const std::string_view end = text.substr(trimmed_right(text).size());
    if (before.ends_with(end)) before.remove_suffix(end.size());
    text.remove_suffix(end.size());
  }
  if (!before.ends_with(text))
    return wrong_message("the model's template changes the last message",
                         "send it without reasoning");
  is_blank_ = trimmed_left(text).empty();
  const std::string_view head = trimmed_right(before.substr(0, before.size() - text.size()));
  if (reasoning != nullptr) {
    const std::size_t begun = text.rfind(reasoning->begin);
    const std::size_t ended = text.rfind(reasoning->end);
    if (begun == std::string_view::npos && ended == std::string_view::npos)
      in_reasoning_ = head.ends_with(reasoning->begin);
    else
      in_reasoning_ =
          begun != std::string_view::npos && (ended == std::string_view::npos || begun > ended);
    if (in_reasoning_) opening_ = cat("\n", reasoning->end, "\n\n");
  }
  conversation = conversation.part(0, before.size());
  return {};
}

}  // namespace motley::serving
