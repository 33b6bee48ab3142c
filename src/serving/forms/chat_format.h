#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "serving/forms/output_parser.h"
#include "serving/forms/special_tokens.h"
#include "serving/forms/tool_form.h"
#include "text/model_text.h"

namespace motley::serving {

// How a model's chat answers mark reasoning and calls.
struct ChatFormat {
  const ToolForm* calls = nullptr;           // null: in no known form
  const ReasoningForm* reasoning = nullptr;  // null: it has none
  // The template refuses or ignores messages of role developer, and accepts role system.
  bool lacks_developer = false;

  bool operator==(const ChatFormat&) const = default;

  bool is_harmony() const { return calls != nullptr && calls->body == CallBody::harmony; }
  // Everything that the parser must see in the text.
  std::vector<std::string_view> marks() const;
  // The special tokens that are marks or parts of them.
  std::vector<std::int32_t> visible_tokens(std::span<const SpecialToken> special) const;
};

// Forms named by an operator; missing ones are derived from the template.
struct FormNames {
  std::string calls = {};
  std::string reasoning = {};

  // Fails if a name is unknown.
  Result<void> check() const;
};

// Determines the form in which the template writes calls and reasoning, by rendering it.
// `adapter`: the one whose template it is; empty: the model's own.
ChatFormat find_chat_format(const text::ModelText& model, const FormNames& names = {},
                            const std::string& adapter = {});
// For a template that is not the model's own.
ChatFormat find_chat_format(const text::ModelText& model, const text::ChatTemplate& chat_template);

// Whether the template shows the model its tools.
bool shows_tools(const text::ModelText& model);

// The format of an answer to `prompt`, the rendered conversation: a template may use reasoning only
// with some of its variables.
ChatFormat format_for_prompt(ChatFormat format, std::string_view prompt);

// What an answer may have besides content.
struct AnswerParts {
  const json::Value* tools = nullptr;  // calls of these are parsed
  bool one_call = false;               // at most
};

// For one answer to `prompt`. The format is that of the prompt.
std::unique_ptr<OutputParser> make_output_parser(const ChatFormat& format, std::string_view prompt,
                                                 const AnswerParts& parts);

// For an answer that continues an open message: in its reasoning or in its content. A blank message
// has neither yet.
std::unique_ptr<OutputParser> make_continuing_parser(const ChatFormat& format, bool in_reasoning,
                                                     bool is_blank, const AnswerParts& parts);

// For an answer whose form a grammar determines: all of it is content.
std::unique_ptr<OutputParser> make_plain_parser();

// The same conversation with role developer replaced by system.
json::Value developer_as_system(const json::Value& messages);

// What must be appended to the prompt so that the answer begins with content: the end of reasoning
// that the prompt has begun, or the head of the message.
std::string opening_of_content(const ChatFormat& format, std::string_view prompt);

}  // namespace motley::serving
