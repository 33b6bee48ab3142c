#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

// JSON values, for config files, adapters, tokenizers, requests and answers. Objects keep the order
// of their keys.
namespace motley::json {

class Value;
struct Member;

using Array = std::vector<Value>;

class Object {
 public:
  // Not inline, because Member is not complete yet.
  Object();
  // Keys must be unique.
  Object(std::initializer_list<Member> members);
  Object(const Object& other);
  Object(Object&& other) noexcept;
  Object& operator=(const Object& other);
  Object& operator=(Object&& other) noexcept;
  ~Object();

  // An object with an index of its keys for find(). Refuses duplicate keys.
  static Result<Object> make(std::vector<Member> members);
  // The last value of a duplicate key counts.
  static Object of_last(std::vector<Member> members);

  // The value of a key, or null if there is none.
  const Value* find(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  // The same, but JSON's null also counts as absent, as in config files.
  const Value* find_set(std::string_view key) const;

  // Appends a member; the key must be new.
  void add(std::string key, Value value);

  std::span<const Member> members() const;
  std::size_t size() const;
  bool empty() const { return size() == 0; }

 private:
  std::vector<Member> members_;
  // Positions in members_ by ascending key; empty in small objects and those made with add().
  std::vector<std::uint32_t> by_key_;
};

enum class Kind : std::uint8_t { null, boolean, integer, number, string, array, object };

// "a string", "an object", ... for messages.
std::string_view describe(Kind kind);

class Value {
 public:
  Value() = default;
  Value(std::nullptr_t) {}
  template <std::same_as<bool> Boolean>  // a pointer would convert to a plain bool
  Value(Boolean value) : data_(value) {}
  Value(int value) : data_(std::int64_t{value}) {}
  Value(std::int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string value) : data_(std::move(value)) {}
  Value(std::string_view value) : data_(std::string(value)) {}
  Value(const char* value) : data_(std::string(value)) {}
  Value(Array value) : data_(std::move(value)) {}
  Value(Object value) : data_(std::move(value)) {}

  // An integer beyond 64 bits, of kind number, with its digits as in JSON, perhaps with a minus. It
  // must be in the range of a double.
  static Value big_integer(std::string digits);

  Kind kind() const {
    return if_big_integer() == nullptr ? static_cast<Kind>(data_.index()) : Kind::number;
  }
  bool is_null() const { return kind() == Kind::null; }

  // Null if the value is of another kind. An integer has no fraction or exponent and fits in 64
  // bits; larger ones keep their digits; every other number is a double. as_number() accepts all
  // three.
  const bool* if_boolean() const { return std::get_if<bool>(&data_); }
  const std::int64_t* if_integer() const { return std::get_if<std::int64_t>(&data_); }
  const std::string* if_big_integer() const {
    const auto* const big = std::get_if<BigInteger>(&data_);
    return big == nullptr ? nullptr : &big->digits;
  }
  const std::string* if_string() const { return std::get_if<std::string>(&data_); }
  const Array* if_array() const { return std::get_if<Array>(&data_); }
  const Object* if_object() const { return std::get_if<Object>(&data_); }

  // The value as that kind, or an error that names `where` and the actual kind.
  Result<bool> as_boolean(std::string_view where) const;
  Result<std::int64_t> as_integer(std::string_view where) const;
  Result<double> as_number(std::string_view where) const;
  Result<const std::string*> as_string(std::string_view where) const;
  Result<const Array*> as_array(std::string_view where) const;
  Result<const Object*> as_object(std::string_view where) const;

 private:
  struct BigInteger {
    std::string digits;
  };

  // In the order of Kind, except for the last.
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object, BigInteger>
      data_;
};

struct Member {
  std::string key;
  Value value;
};

struct ParseLimits {
  int depth = 64;  // at most 1000
  // Limits memory: a value takes 50 to 100 bytes, however short its text.
  std::int64_t values = 20'000'000;
  // Whether the last value of a duplicate key counts, as in Python and JavaScript, for JSON that
  // models write. Otherwise duplicates are refused.
  bool last_of_key = false;
};

// Parses one JSON value, followed only by white space. Strict: valid UTF-8, no comments, trailing
// commas, NaN, byte-order mark or duplicate keys. `where` names the text in messages.
Result<Value> parse(std::string_view text, std::string_view where, const ParseLimits& limits = {});

// Compact text. Invalid UTF-8 in strings is repaired, so the result is always JSON; infinity and
// NaN, which JSON lacks, become null.
std::string write(const Value& value);

// With line breaks and two spaces of indentation.
std::string write_pretty(const Value& value);

// Appends a string literal, quotes included.
void append_string(std::string& text, std::string_view string);
std::string string_literal(std::string_view string);

// Appends the contents of a string literal, without quotes.
void append_escaped(std::string& text, std::string_view string);

// Appends a number as write() does: the shortest form that reads back as the same number, always
// with a fraction or exponent, so that it stays a floating-point number.
void append_number(std::string& text, double number);
void append_number(std::string& text, float number);

}  // namespace motley::json
