#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/fields/kept_tokens.h"
#include "text/tokenizer.h"

namespace motley::server {

// An item of a response while it grows.
struct ResponseItem {
  enum class Kind : std::uint8_t { reasoning, message, call };
  enum class Status : std::uint8_t { in_progress, completed, incomplete };

  Kind kind;
  Status status = Status::in_progress;
  std::string id;
  std::string call_id = {};  // of a call
  std::string name = {};     // of the called function
  std::string text = {};     // for a call: its arguments
  KeptTokens tokens = {};    // of a message, if log-probabilities are requested

  std::size_t bytes() const {
    return sizeof(*this) + id.capacity() + call_id.capacity() + name.capacity() + text.capacity() +
           tokens.bytes();
  }
};

std::string_view name(ResponseItem::Status status);

// JSON that is written in pieces: it refers to long texts and lists of tokens, and expands them
// when they are written.
class ResponseScript {
 public:
  // What it refers to must outlive the script; items may be added meanwhile.
  ResponseScript(const std::vector<ResponseItem>& items, const std::string& repeated,
                 const text::Tokenizer& tokenizer, bool tokens_as_ids)
      : items_(items), repeated_(repeated), tokenizer_(tokenizer), tokens_as_ids_(tokens_as_ids) {}

  void add(std::string_view text);
  // The members of a response that repeat its request.
  void add_repeated() { steps_.push_back({.what = What::repeated}); }
  // The item; `empty`: as when it begins, without its text.
  void add_item(std::size_t item, bool empty);
  // The single part of the content of a message or of reasoning.
  void add_part(std::size_t item, bool empty);
  // As a string in quotes.
  void add_text(std::size_t item) { steps_.push_back({.what = What::text, .item = item}); }
  // Tokens of a message with their log-probabilities, without brackets.
  void add_tokens(std::size_t item, std::size_t from, std::size_t to);

  // The next piece of about `bytes` bytes; empty at the end.
  std::string next(std::size_t bytes);

 private:
  enum class What : std::uint8_t { literal, repeated, text, tokens };
  struct Step {
    What what;
    std::string literal = {};
    std::size_t item = 0;
    std::size_t at = 0;  // bytes of the text, or tokens, that have been written
    std::size_t end = 0;
    bool begun = false;
  };

  // True if all of the step has been written.
  bool write(Step& step, std::string& piece, std::size_t bytes) const;
  bool write_text(Step& step, std::string& piece, std::size_t bytes) const;

  const std::vector<ResponseItem>& items_;
  const std::string& repeated_;
  const text::Tokenizer& tokenizer_;
  bool tokens_as_ids_;
  std::deque<Step> steps_;
};

}  // namespace motley::server
