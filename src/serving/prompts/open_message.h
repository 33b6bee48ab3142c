#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "serving/forms/tool_form.h"
#include "text/chat/chat_template.h"
#include "text/chat/marked_text.h"

namespace motley::serving {

// A conversation whose last message is continued by the model: `continue_final_message`.
class OpenMessage {
 public:
  // Marks the end of the last message's text in the inputs.
  static Result<OpenMessage> begin(text::ChatInputs& inputs);

  // Cuts the rendered conversation at the mark. Refuses it if the message's text does not precede
  // the mark. `reasoning`: how the template marks reasoning, or null.
  Result<void> cut(text::MarkedText& conversation, const ReasoningForm* reasoning);

  // After cut(): the message has no text yet.
  bool is_blank() const { return is_blank_; }
  // After cut(): it ends inside reasoning.
  bool in_reasoning() const { return in_reasoning_; }
  // What must be appended so that content begins.
  const std::string& opening_of_content() const { return opening_; }

 private:
  explicit OpenMessage(std::string text) : text_(std::move(text)) {}

  std::string text_;
  bool is_blank_ = false;
  bool in_reasoning_ = false;
  std::string opening_;
};

}  // namespace motley::serving
