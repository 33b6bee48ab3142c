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

// JSON as values: what config files, adapters, tokenizers and requests are read into, and what
// answers are written from. Objects keep the order of their keys.
namespace motley::json {

class Value;
struct Member;

using Array = std::vector<Value>;

class Object {
 public:
  // Not inline, because Member is not complete yet.
  Object();
  // The keys must differ.
  Object(std::initializer_list<Member> members);
  Object(const Object& other);
  Object(Object&& other) noexcept;
  Object& operator=(const Object& other);
  Object& operator=(Object&& other) noexcept;
  ~Object();

  // An object of these members, its keys indexed for find(). Refuses a key that occurs twice.
  static Result<Object> make(std::vector<Member> members);
  // Of a key that occurs twice it has the last value.
  static Object of_last(std::vector<Member> members);

  // The value of a key, or null where the object lacks it.
  const Value* find(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  // The same, with null too where the value is JSON's null: what configs mean by it.
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

  // An integer beyond 64 bits, of kind number: its digits as JSON writes them, a minus included. It
  // must fit the range of a double.
  static Value big_integer(std::string digits);

  Kind kind() const {
    return if_big_integer() == nullptr ? static_cast<Kind>(data_.index()) : Kind::number;
  }
  bool is_null() const { return kind() == Kind::null; }

  // Null where the value is of another kind. An integer is written without fraction or exponent and
  // fits 64 bits; one beyond keeps its digits; every other number is a double. as_number() takes
  // all three.
  const bool* if_boolean() const { return std::get_if<bool>(&data_); }
  const std::int64_t* if_integer() const { return std::get_if<std::int64_t>(&data_); }
  const std::string* if_big_integer() const {
    const auto* const big = std::get_if<BigInteger>(&data_);
    return big == nullptr ? nullptr : &big->digits;
  }
  const std::string* if_string() const { return std::get_if<std::string>(&data_); }
  const Array* if_array() const { return std::get_if<Array>(&data_); }
  const Object* if_object() const { return std::get_if<Object>(&data_); }

  // The value as that kind, or an error that names `where` and says what stands there instead.
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

  // In the order of Kind, but for the last.
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object, BigInteger>
      data_;
};

struct Member {
  std::string key;
  Value value;
};

struct ParseLimits {
  int depth = 64;  // at most 1000
  // Bounds memory: a value takes 50 to 100 bytes, however short its text.
  std::int64_t values = 20'000'000;
  // Of a key that occurs twice in an object the last value counts, as in Python and JavaScript:
  // what models write. Else it is refused.
  bool last_of_key = false;
};

// One JSON value with nothing but white space after it. Strict: valid UTF-8, no comments, no
// trailing commas, no NaN, no byte-order mark, no key twice in one object. `where` is what messages
// call the text.
Result<Value> parse(std::string_view text, std::string_view where, const ParseLimits& limits = {});

// Compact text. Strings that are not valid UTF-8 are repaired, so the result is always JSON; an
// infinite or undefined number, which JSON lacks, becomes null.
std::string write(const Value& value);

// With line breaks and two spaces of indentation.
std::string write_pretty(const Value& value);

// Appends a string literal, quotes included.
void append_string(std::string& text, std::string_view string);
std::string string_literal(std::string_view string);

// What stands between the quotes of a string literal.
void append_escaped(std::string& text, std::string_view string);

// Appends a number as write() does: shortest form that reads back the same, always with a fraction
// or an exponent, so that it stays a floating-point number.
void append_number(std::string& text, double number);
void append_number(std::string& text, float number);

}  // namespace motley::json
