#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/output/tool_call.h"

namespace motley::server {

// A piece of an answer, taken apart.
struct ParsedOutput {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;

  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

// Takes a model's text apart as it comes: reasoning, content and calls. However the text is cut
// into pieces, the parts together are the same.
class OutputParser {
 public:
  virtual ~OutputParser() = default;

  virtual ParsedOutput push(std::string_view piece) = 0;
  // The rest, where the text ends. Nothing may be pushed after it.
  virtual ParsedOutput finish() = 0;
};

}  // namespace motley::server
