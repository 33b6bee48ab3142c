#pragma once

#include <memory>
#include <optional>

#include "server/output/call_reader.h"
#include "server/output/output_parser.h"

namespace motley::server {

// Reasoning between <think> and </think>, calls between <tool_call> and </tool_call>, all else is
// content. White space around reasoning and calls belongs to the form. What stands between the tags
// of a call and is none stays content, tags and all.
class TaggedParser final : public OutputParser {
 public:
  struct Options {
    bool reasoning = false;                // <think> is a tag
    bool begins_reasoning = false;         // the prompt ended behind <think>
    std::optional<CallSyntax> calls = {};  // <tool_call> is a tag
    ToolSchemas schemas = {};
  };

  explicit TaggedParser(Options options);

  ParsedOutput push(std::string_view piece) override;
  ParsedOutput finish() override;

 private:
  enum class State : std::uint8_t { start, reasoning, content, call };

  // Uses up text from the front of held_; false where more must come first.
  bool advance(ParsedOutput& output);
  bool in_start(ParsedOutput& output);
  bool in_reasoning(ParsedOutput& output);
  bool in_content(ParsedOutput& output);
  bool in_call(ParsedOutput& output);
  void leave_call(CallReader::Progress progress, ParsedOutput& output);

  Options options_;
  State state_;
  std::string held_;
  bool skip_spaces_ = false;            // until something else comes
  std::unique_ptr<CallReader> reader_;  // in a call
};

}  // namespace motley::server
