#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "text/chat/marked_text.h"

// The values of templates: Python's, as far as templates can observe them.
namespace motley::text::jinja {

class Runtime;
class Arguments;

enum class Kind : std::uint8_t {
  missing,    // an unassigned variable; operators never see it
  undefined,  // the result of an unknown name or attribute
  none,
  boolean,
  integer,
  big_integer,  // an int beyond 64 bits
  number,
  string,
  list,
  tuple,
  dict,
  view,  // dict.keys(), .values(), .items()
  range,
  generator,  // result of map, select, ...: can be read once
  name_space,
  callable,  // functions, methods, macros
  loop,
  cycler,
};

// Lives as long as its heap.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

struct BigInteger;
struct String;
struct Undefined;
struct Sequence;
struct Dict;
struct View;
struct Range;
struct Generator;
struct Namespace;
struct Callable;
struct Loop;
struct Cycler;

// A small copyable handle; the object belongs to a heap.
class Value {
 public:
  Value() = default;
  static Value none() { return Value(Kind::none); }
  static Value boolean(bool value) {
    Value result(Kind::boolean);
    result.boolean_ = value;
    return result;
  }
  static Value integer(std::int64_t value) {
    Value result(Kind::integer);
    result.integer_ = value;
    return result;
  }
  static Value number(double value) {
    Value result(Kind::number);
    result.number_ = value;
    return result;
  }
  static Value object(Kind kind, const Object* object) {
    Value result(kind);
    result.object_ = const_cast<Object*>(object);
    return result;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }

  bool boolean() const { return require(Kind::boolean), boolean_; }
  std::int64_t integer() const { return require(Kind::integer), integer_; }
  const BigInteger& big_integer() const { return get<const BigInteger>(Kind::big_integer); }
  double number() const { return require(Kind::number), number_; }
  const String& string() const { return get<const String>(Kind::string); }
  const Undefined& undefined() const { return get<const Undefined>(Kind::undefined); }
  // A list or a tuple; tuples are immutable.
  Sequence& sequence() const;
  Dict& dict() const { return get<Dict>(Kind::dict); }
  const View& view() const { return get<const View>(Kind::view); }
  const Range& range() const { return get<const Range>(Kind::range); }
  Generator& generator() const { return get<Generator>(Kind::generator); }
  Namespace& name_space() const { return get<Namespace>(Kind::name_space); }
  Callable& callable() const { return get<Callable>(Kind::callable); }
  Loop& loop() const;  // in loop.h
  Cycler& cycler() const { return get<Cycler>(Kind::cycler); }

  // Python's `is`: the same object, or equal singletons and small values.
  bool same_as(const Value& other) const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  void require(Kind kind) const { MOTLEY_CHECK(kind_ == kind, "a value read as another kind"); }
  template <class T>
  T& get(Kind kind) const {
    require(kind);
    return *static_cast<T*>(object_);
  }

  Kind kind_ = Kind::missing;
  union {
    bool boolean_;
    std::int64_t integer_ = 0;
    double number_;
    Object* object_;
  };
};

// Never one that fits in 64 bits; created by big_integer.h.
struct BigInteger : Object {
  explicit BigInteger(std::string text) : digits(std::move(text)) {}
  std::string digits;  // decimal, with a minus if it is negative, without leading zeros
};

// Valid UTF-8; immutable.
struct String : Object {
  String(MarkedText marked, bool is_markup);

  MarkedText marked;
  bool markup;  // result of the filters safe and escape: `+` escapes other operands
  bool ascii;

  std::string_view text() const { return marked.text; }
  // Whether any byte of it is untrusted.
  bool any_untrusted() const { return !marked.untrusted.empty(); }
};

struct Undefined : Object {
  explicit Undefined(std::string why) : message(std::move(why)) {}
  std::string message;  // the error of operations on it
};

struct Sequence : Object {
  std::vector<Value> items;
  bool is_group = false;  // a result of groupby: has .grouper and .list
};

inline Sequence& Value::sequence() const {
  MOTLEY_CHECK(kind_ == Kind::list || kind_ == Kind::tuple, "a value read as a sequence");
  return *static_cast<Sequence*>(object_);
}

// Keeps insertion order. Keys are hashable values; marks are ignored in comparisons.
struct Dict : Object {
  using Entry = std::pair<Value, Value>;

  const std::vector<Entry>& entries() const { return entries_; }
  std::size_t size() const { return entries_.size(); }

  const Value* find(std::string_view key) const;
  Result<const Value*> find(Runtime& runtime, const Value& key) const;
  Result<void> set(Runtime& runtime, const Value& key, const Value& value);

 private:
  // Position of a key, or -1.
  std::ptrdiff_t position(std::string_view key) const;
  Result<std::ptrdiff_t> position(Runtime& runtime, const Value& key) const;
  std::size_t comparisons() const;

  std::vector<Entry> entries_;
  // For string keys, once there are many. Points into the keys, which outlive it.
  std::map<std::string_view, std::size_t> positions_;
};

struct View : Object {
  enum class Of : std::uint8_t { keys, values, items };
  View(const Dict& of, Of which) : dict(of), part(which) {}
  const Dict& dict;
  Of part;
};

struct Range : Object {
  Range(std::int64_t from, std::int64_t to, std::int64_t by);
  std::int64_t start;
  std::int64_t stop;
  std::int64_t step;  // not 0
  std::int64_t size;

  Value at(std::int64_t index) const { return Value::integer(start + (index * step)); }
};

// Yields its values one by one, each once.
struct Generator : Object {
  // The next value, or a missing one at the end.
  virtual Result<Value> next(Runtime& runtime) = 0;
};

struct Namespace : Object {
  Dict attributes;
};

struct Callable : Object {
  virtual Result<Value> call(Runtime& runtime, Arguments& arguments) = 0;
  // As Python would print it.
  virtual std::string name() const = 0;
};

struct Cycler : Object {
  std::vector<Value> items;
  std::size_t position = 0;
};

// What an allocation takes in addition to its bytes, at most.
inline constexpr std::size_t allocation_bytes = 32;

// Owns objects and counts their bytes.
class Heap {
 public:
  template <class T, class... Parameters>
  T& make(Parameters&&... parameters) {
    auto made = std::make_unique<T>(std::forward<Parameters>(parameters)...);
    T& object = *made;
    objects_.push_back(std::move(made));
    // The list of objects grows by doubling.
    used_ += sizeof(T) + allocation_bytes + (2 * sizeof(objects_.back()));
    return object;
  }

  Value string(MarkedText marked, bool markup = false);

  // Counts bytes that an object holds in addition to itself.
  void count(std::size_t bytes) { used_ += bytes; }
  void count_text(const std::string& text) { used_ += text.capacity() + 1; }
  std::size_t used() const { return used_; }

 private:
  std::vector<std::unique_ptr<Object>> objects_;
  std::size_t used_ = 0;
};

// As Python names the type: 'str', 'dict', ...
std::string_view type_name(const Value& value);

bool is_hashable_kind(Kind kind);

}  // namespace motley::text::jinja
