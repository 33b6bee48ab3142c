#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace motley::server {

// What is new of a call. The pieces of a call together name it, in the first, and have its
// arguments: JSON, an object, unless the model wrote something else or was cut short.
struct CallPiece {
  bool begins = false;
  std::string name = {};
  std::string arguments = {};

  bool operator==(const CallPiece&) const = default;
};

// A piece of an answer, taken apart.
struct ParsedOutput {
  std::string reasoning;
  std::string content;
  std::vector<CallPiece> calls;

  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }

  void begin_call(std::string_view name) {
    calls.push_back({.begins = true, .name = std::string(name)});
  }
  // To the call that was begun last.
  void add_arguments(std::string_view text) {
    if (text.empty()) return;
    if (calls.empty()) calls.emplace_back();
    calls.back().arguments += text;
  }
  void append(ParsedOutput more) {
    reasoning += more.reasoning;
    content += more.content;
    for (CallPiece& piece : more.calls) {
      if (piece.begins)
        calls.push_back(std::move(piece));
      else
        add_arguments(piece.arguments);
    }
  }
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
