#include "base/json/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <ranges>
#include <set>

#include "base/cat.h"
#include "base/utf8.h"

namespace motley::json {
namespace {

// Below this a linear search is as fast as a binary search.
constexpr std::size_t indexed_from = 8;

Error wrong_kind(std::string_view where, std::string_view wanted, Kind found) {
  return {ErrorCode::invalid_argument, cat("expected ", wanted, ", found ", describe(found)),
          std::string(where), cat("make it ", wanted)};
}

double to_double(const std::string& digits) {
  double number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

template <class Number>
void append_shortest(std::string& text, Number number) {
  if (!std::isfinite(number)) {
    text += "null";
    return;
  }
  const std::size_t begin = text.size();
  append(text, number);
  if (text.find_first_of(".e", begin) == std::string::npos) text += ".0";
}

class Writer {
 public:
  explicit Writer(bool pretty) : pretty_(pretty) {}

  std::string take() && { return std::move(text_); }

  void write(const Value& value) {
    switch (value.kind()) {
      case Kind::null:
        text_ += "null";
        break;
      case Kind::boolean:
        append(text_, *value.if_boolean());
        break;
      case Kind::integer:
        append(text_, *value.if_integer());
        break;
      case Kind::number:
        if (const std::string* const digits = value.if_big_integer())
          text_ += *digits;
        else
          append_number(text_, value.as_number("").value());
        break;
      case Kind::string:
        append_string(text_, *value.if_string());
        break;
      case Kind::array:
        write_array(*value.if_array());
        break;
      case Kind::object:
        write_object(*value.if_object());
        break;
    }
  }

 private:
  void write_array(const Array& array) {
    text_ += '[';
    ++depth_;
    for (std::size_t i = 0; i < array.size(); ++i) {
      if (i > 0) text_ += ',';
      new_line();
      write(array[i]);
    }
    --depth_;
    if (!array.empty()) new_line();
    text_ += ']';
  }

  void write_object(const Object& object) {
    text_ += '{';
    ++depth_;
    bool first = true;
    for (const Member& member : object.members()) {
      if (!first) text_ += ',';
      first = false;
      new_line();
      append_string(text_, member.key);
      text_ += pretty_ ? ": " : ":";
      write(member.value);
    }
    --depth_;
    if (!object.empty()) new_line();
    text_ += '}';
  }

  void new_line() {
    if (!pretty_) return;
    text_ += '\n';
    text_.append(static_cast<std::size_t>(depth_) * 2, ' ');
  }

  std::string text_;
  bool pretty_;
  int depth_ = 0;
};

}  // namespace

Object::Object() = default;
Object::Object(std::initializer_list<Member> members) : members_(members) {}
Object::Object(const Object& other) = default;
Object::Object(Object&& other) noexcept = default;
Object& Object::operator=(const Object& other) = default;
Object& Object::operator=(Object&& other) noexcept = default;
Object::~Object() = default;

Result<Object> Object::make(std::vector<Member> members) {
  Object object;
  object.members_ = std::move(members);
  const auto key = [&](std::uint32_t i) -> const std::string& { return object.members_[i].key; };
  std::vector<std::uint32_t> order(object.members_.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, {}, key);
  const auto twice = std::ranges::adjacent_find(order, {}, key);
  if (twice != order.end())
    return Error(ErrorCode::invalid_argument,
                 cat("key ", quote(key(*twice)), " twice in one object"), "", "keep one of them");
  if (order.size() >= indexed_from) object.by_key_ = std::move(order);
  return object;
}

Object Object::of_last(std::vector<Member> members) {
  std::set<std::string> seen;
  std::vector<Member> last;
  for (Member& member : std::views::reverse(members)) {
    if (seen.insert(member.key).second) last.push_back(std::move(member));
  }
  std::ranges::reverse(last);
  return make(std::move(last)).value();
}

std::span<const Member> Object::members() const { return members_; }
std::size_t Object::size() const { return members_.size(); }

const Value* Object::find(std::string_view key) const {
  if (by_key_.empty()) {
    for (const Member& member : members_) {
      if (member.key == key) return &member.value;
    }
    return nullptr;
  }
  const auto at = std::lower_bound(
      by_key_.begin(), by_key_.end(), key,
      [this](std::uint32_t i, std::string_view wanted) { return members_[i].key < wanted; });
  if (at == by_key_.end() || members_[*at].key != key) return nullptr;
  return &members_[*at].value;
}

const Value* Object::find_set(std::string_view key) const {
  const Value* const value = find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

void Object::add(std::string key, Value value) {
  by_key_.clear();
  members_.push_back({std::move(key), std::move(value)});
}

std::string_view describe(Kind kind) {
  switch (kind) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return "true or false";
    case Kind::integer:
      return "an integer";
    case Kind::number:
      return "a number";
    case Kind::string:
      return "a string";
    case Kind::array:
      return "a list";
    case Kind::object:
      return "an object";
  }
  MOTLEY_CHECK(false, "a Kind without a description");
}

Result<bool> Value::as_boolean(std::string_view where) const {
  if (const bool* value = if_boolean()) return *value;
  return wrong_kind(where, describe(Kind::boolean), kind());
}

Value Value::big_integer(std::string digits) {
  Value value;
  value.data_ = BigInteger{std::move(digits)};
  return value;
}

Result<std::int64_t> Value::as_integer(std::string_view where) const {
  if (const std::int64_t* value = if_integer()) return *value;
  if (if_big_integer() != nullptr)
    return Error(ErrorCode::invalid_argument, "an integer beyond 64 bits", std::string(where),
                 "give a smaller one");
  return wrong_kind(where, describe(Kind::integer), kind());
}

Result<double> Value::as_number(std::string_view where) const {
  if (const auto* value = std::get_if<double>(&data_)) return *value;
  if (const std::int64_t* value = if_integer()) return static_cast<double>(*value);
  if (const std::string* digits = if_big_integer()) return to_double(*digits);
  return wrong_kind(where, describe(Kind::number), kind());
}

Result<const std::string*> Value::as_string(std::string_view where) const {
  if (const std::string* value = if_string()) return value;
  return wrong_kind(where, describe(Kind::string), kind());
}

Result<const Array*> Value::as_array(std::string_view where) const {
  if (const Array* value = if_array()) return value;
  return wrong_kind(where, describe(Kind::array), kind());
}

Result<const Object*> Value::as_object(std::string_view where) const {
  if (const Object* value = if_object()) return value;
  return wrong_kind(where, describe(Kind::object), kind());
}

void append_escaped(std::string& text, std::string_view string) {
  constexpr std::string_view hex = "0123456789abcdef";
  while (!string.empty()) {
    const utf8::Decoded next = utf8::decode(string);
    const char32_t c = next.code_point;
    if (!next.valid) {
      utf8::append(text, 0xFFFD);
    } else if (c == '"' || c == '\\') {
      text += '\\';
      text += static_cast<char>(c);
    } else if (c == '\n') {
      text += "\\n";
    } else if (c == '\r') {
      text += "\\r";
    } else if (c == '\t') {
      text += "\\t";
    } else if (c < 0x20 || (c >= 0x7f && c < 0xa0)) {
      // Also escapes control characters that JSON allows, because terminals would interpret them in
      // log lines.
      text += "\\u00";
      text += hex[c >> 4];
      text += hex[c & 15];
    } else {
      text += string.substr(0, next.length);
    }
    string.remove_prefix(next.length);
  }
}

void append_string(std::string& text, std::string_view string) {
  text += '"';
  append_escaped(text, string);
  text += '"';
}

std::string string_literal(std::string_view string) {
  std::string text;
  append_string(text, string);
  return text;
}

void append_number(std::string& text, double number) { append_shortest(text, number); }
void append_number(std::string& text, float number) { append_shortest(text, number); }

std::string write(const Value& value) {
  Writer writer(false);
  writer.write(value);
  return std::move(writer).take();
}

std::string write_pretty(const Value& value) {
  Writer writer(true);
  writer.write(value);
  return std::move(writer).take();
}

}  // namespace motley::json
