#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "server/output/output_parser.h"
#include "server/output/tool_call.h"
#include "text/model_text.h"

namespace motley::server {

// How a model's answers in chats mark reasoning and calls: the form in which its template writes
// them back, found out by trying it.
struct ChatFormat {
  bool harmony = false;
  bool think_tags = false;
  std::optional<CallSyntax> calls = {};

  bool operator==(const ChatFormat&) const = default;

  // Special tokens that the parser must see in the text.
  std::vector<std::string_view> marks() const;
};

ChatFormat find_chat_format(const text::ModelText& model);

// For one answer to `prompt`, the rendered conversation. Calls are parsed where `tools` is given.
std::unique_ptr<OutputParser> make_output_parser(const ChatFormat& format, std::string_view prompt,
                                                 const json::Value* tools);

// For an answer whose form a grammar fixes: all of it is content.
std::unique_ptr<OutputParser> make_plain_parser();

// What must stand behind the prompt so that such an answer begins where content stands: the end of
// reasoning that the prompt has begun, or the head of the message.
std::string_view opening_of_content(const ChatFormat& format, std::string_view prompt);

}  // namespace motley::server
