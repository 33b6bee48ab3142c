// The only file that uses the JSON library. It builds our values from the library's parser events,
// so that depth, size and duplicate keys are checked while reading.

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/utf8.h"

namespace motley::json {
namespace {

constexpr int deepest = 1000;

// Python's parser refuses it, too.
constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

using Members = std::vector<Member>;

// Receives the parser's events; returns false to stop it. It has an explicit stack, so that the
// depth of the input does not use the thread's stack.
class Builder {
 public:
  Builder(std::string_view text, std::string_view where, const ParseLimits& limits)
      : text_(text), where_(where), limits_(limits) {}

  bool null() { return put({}); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(std::int64_t value) { return put(value); }
  bool number_unsigned(std::uint64_t value) {
    if (value > INT64_MAX) return put(Value::big_integer(cat(value)));
    return put(static_cast<std::int64_t>(value));
  }
  // Also called for integers beyond 64 bits.
  bool number_float(double value, const std::string& text) {
    if (text.find_first_of(".eE") == std::string::npos) return put(Value::big_integer(text));
    return put(value);
  }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) { return fail("binary data", "write it as text"); }

  bool start_object(std::size_t) { return open(Members()); }
  bool start_array(std::size_t) { return open(Array()); }

  bool key(std::string& value) {
    stack_.back().key = std::move(value);
    return true;
  }

  bool end_object() {
    auto members = std::get<Members>(std::move(stack_.back().container));
    auto object = limits_.last_of_key ? Result<Object>(Object::of_last(std::move(members)))
                                      : Object::make(std::move(members));
    if (!object.ok()) {
      name_member();
      return fail(object.error().what(), object.error().fix());
    }
    stack_.pop_back();
    return put(*std::move(object));
  }
  bool end_array() {
    Array array = std::get<Array>(std::move(stack_.back().container));
    stack_.pop_back();
    return put(std::move(array));
  }

  // The parser has read `position` bytes, counting the end as one. The last byte ends a token that
  // is not allowed there, or cannot continue its token.
  template <class Exception>
  bool parse_error(std::size_t position, const std::string& token, const Exception& exception) {
    if (position > text_.size()) return syntax_error(text_.size(), 0);
    const std::size_t end = position;
    if constexpr (std::is_same_v<Exception, nlohmann::json::out_of_range>) {
      where_ += place(end - token.size());
      return fail(cat("the number ", quote(token), " is beyond the range of a 64-bit float"),
                  "write a smaller one");
    }
    const bool whole_token =
        std::string_view(exception.what()).find("; last read: ") == std::string_view::npos;
    if (whole_token) {
      const std::size_t length = token_length(text_.substr(0, end), token);
      return syntax_error(end - length, length);
    }
    // For an incomplete character, the error is at its first byte.
    const std::size_t begin = end - 1 - utf8::incomplete_tail(text_.substr(0, end - 1));
    return syntax_error(begin, utf8::decode(text_.substr(begin)).length);
  }

  bool byte_order_mark_error() {
    where_ += place(0);
    return fail("JSON that begins with a byte-order mark", "save it as UTF-8 without the mark");
  }

  bool syntax_error(std::size_t begin, std::size_t length) {
    where_ += place(begin);
    const std::string found =
        begin == text_.size() ? "the end" : quote(text_.substr(begin, length));
    return fail(cat("not valid JSON at ", found), "correct the text there");
  }

  Result<Value> take(bool parsed) && {
    if (error_) return *std::move(error_);
    MOTLEY_CHECK(parsed && stack_.empty(), "a parse without an error is whole");
    return std::move(root_);
  }

 private:
  struct Open {
    std::variant<Array, Members> container;
    std::string key;  // of the member being read
  };

  // The length of the token that ends `read`. The library's `token` holds it, but for brackets,
  // commas and literals also preceding text.
  static std::size_t token_length(std::string_view read, std::string_view token) {
    if (read.ends_with("false")) return 5;
    if (read.ends_with("true") || read.ends_with("null")) return 4;
    if (read.back() == '"' || (read.back() >= '0' && read.back() <= '9')) return token.size();
    return 1;
  }

  // Lines and columns count from 1, columns in characters.
  std::string place(std::size_t at) const {
    const std::string_view before = text_.substr(0, at);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::string_view in_line = before.substr(before.rfind('\n') + 1);  // npos + 1 == 0
    const auto column =
        std::count_if(in_line.begin(), in_line.end(),
                      [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }) +
        1;
    return cat(", line ", line, ", column ", column);
  }

  bool put(Value value) {
    if (++values_ > limits_.values)
      return fail(cat("more than ", limits_.values, " JSON values"), "make it smaller");
    if (stack_.empty()) {
      root_ = std::move(value);
    } else if (auto* array = std::get_if<Array>(&stack_.back().container)) {
      array->push_back(std::move(value));
    } else {
      auto& members = std::get<Members>(stack_.back().container);
      members.push_back({std::move(stack_.back().key), std::move(value)});
    }
    return true;
  }

  bool open(std::variant<Array, Members> container) {
    if (static_cast<int>(stack_.size()) >= limits_.depth) {
      name_member();
      return fail(cat("JSON nested deeper than ", limits_.depth), "make it flatter");
    }
    stack_.push_back({std::move(container), {}});
    return true;
  }

  // Adds the name of the current member of the outermost object, if any.
  void name_member() {
    if (stack_.size() < 2 || !std::holds_alternative<Members>(stack_.front().container)) return;
    where_ += cat(", in ", quote(stack_.front().key));
  }

  bool fail(std::string what, std::string fix) {
    error_ = Error(ErrorCode::invalid_argument, std::move(what), where_, std::move(fix));
    return false;
  }

  std::string_view text_;
  std::string where_;
  ParseLimits limits_;
  std::vector<Open> stack_;
  Value root_;
  std::int64_t values_ = 0;
  std::optional<Error> error_;
};

}  // namespace

Result<Value> parse(std::string_view text, std::string_view where, const ParseLimits& limits) {
  MOTLEY_CHECK(limits.depth <= deepest, "values are written and destroyed recursively");
  Builder builder(text, where, limits);
  if (text.starts_with(byte_order_mark)) {
    builder.byte_order_mark_error();
    return std::move(builder).take(false);
  }
  // The library treats a zero byte as the end of the text.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    builder.syntax_error(zero, 1);
    return std::move(builder).take(false);
  }
  const bool parsed = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder).take(parsed);
}

}  // namespace motley::json
