#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace motley::serving {

// New text of a call. The first piece of a call has its name; the pieces together have its
// arguments: a JSON object, unless the model wrote something else or was cut short.
struct CallPiece {
  bool begins = false;
  std::string name = {};
  std::string arguments = {};
  std::string id = {};  // the model's id for it

  bool operator==(const CallPiece&) const = default;
};

enum class OutputKind : std::uint8_t { reasoning, content, call };

// The parsed parts of a piece of an answer.
struct ParsedOutput {
  // A number of bytes of reasoning or content, or of pieces of calls.
  struct Run {
    OutputKind kind = OutputKind::content;
    std::size_t size = 0;

    bool operator==(const Run&) const = default;
  };

  std::string reasoning;
  std::string content;
  std::vector<CallPiece> calls;
  std::vector<Run> order;  // in the order of the model's text

  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }

  void add_reasoning(std::string_view text) {
    reasoning += text;
    note(OutputKind::reasoning, text.size());
  }
  void add_content(std::string_view text) {
    content += text;
    note(OutputKind::content, text.size());
  }
  void begin_call(std::string_view name, std::string_view id = {}) {
    add_piece({.begins = true, .name = std::string(name), .arguments = {}, .id = std::string(id)});
  }
  // Adds to the last call that was begun.
  void add_arguments(std::string_view text) {
    if (text.empty()) return;
    if (calls.empty()) add_piece({});
    calls.back().arguments += text;
  }
  void drop_reasoning() {
    reasoning.clear();
    std::erase_if(order, [](const Run& run) { return run.kind == OutputKind::reasoning; });
  }
  void append(const ParsedOutput& more) {
    more.for_each(
        [&](OutputKind kind, std::string_view text) {
          if (kind == OutputKind::content)
            add_content(text);
          else
            add_reasoning(text);
        },
        [&](const CallPiece& piece) {
          if (piece.begins)
            add_piece(piece);
          else
            add_arguments(piece.arguments);
        });
  }

  // Visits the parts in order: text(kind, bytes) for reasoning or content, call(piece) for a call.
  template <class Text, class Call>
  void for_each(const Text& text, const Call& call) const {
    std::string_view unread_reasoning = reasoning;
    std::string_view unread_content = content;
    auto piece = calls.begin();
    for (const Run& run : order) {
      if (run.kind == OutputKind::call) {
        for (std::size_t i = 0; i < run.size; ++i) call(*piece++);
        continue;
      }
      auto& unread = run.kind == OutputKind::content ? unread_content : unread_reasoning;
      text(run.kind, unread.substr(0, run.size));
      unread.remove_prefix(run.size);
    }
  }

 private:
  void add_piece(CallPiece piece) {
    calls.push_back(std::move(piece));
    note(OutputKind::call, 1);
  }
  void note(OutputKind kind, std::size_t size) {
    if (size == 0) return;
    if (!order.empty() && order.back().kind == kind)
      order.back().size += size;
    else
      order.push_back({.kind = kind, .size = size});
  }
};

// The section at the end of the text so far: `form` is a mark, or text that may still become any
// section.
enum class OutputSection : std::uint8_t { form, reasoning, content, call };

// Parses a model's text as it arrives into reasoning, content and calls. The result does not depend
// on how the text is divided into pieces.
class OutputParser {
 public:
  virtual ~OutputParser() = default;

  virtual ParsedOutput push(std::string_view piece) = 0;
  // Returns the rest at the end of the text. Nothing may be pushed after it.
  virtual ParsedOutput finish() = 0;
  virtual OutputSection section() const = 0;
};

}  // namespace motley::serving
