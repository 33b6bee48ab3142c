#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/schema/facts.h"
#include "grammar/schema/formats.h"
#include "grammar/schema/schema.h"

namespace motley::grammar::schema {

// Rewrites schemas for the compiler: each has one of the keywords $ref, enum, anyOf and type, and
// beside `type` only keywords that the compiler supports.
class SchemaWriter {
 public:
  SchemaWriter(Source& source, std::string_view where, SchemaReading reading)
      : source_(source),
        where_(where),
        gathering_(source, where),
        to_the_letter_(reading == SchemaReading::to_the_letter) {}

  // Nothing if no value satisfies all of the schemas.
  using Written = Result<std::optional<Value>>;
  Written write_body(const Schemas& schemas);
  // The definitions that written schemas refer to: #/$defs/d0 and so on.
  Object definitions() const;
  // Marks definitions that no value satisfies because they recur without end. True if there are
  // any: everything must be written again.
  bool forget_endless();

 private:
  struct Definition {
    Schemas schemas;
    bool done = false;
    std::optional<Value> body;
  };

  Written write(Schemas schemas);
  Written write_facts(Facts facts);
  Written write_choice(Facts facts);
  Written write_literals(const Facts& facts);
  Written write_types(const Facts& facts);
  std::optional<Value> write_number(const Facts& facts);
  // The multiples that the compiler can count by; others are not enforced.
  struct Multiples {
    bool is_integer = false;
    std::int64_t divisor = 1;
  };
  Multiples multiples_of(const Facts& facts);
  struct Range {
    std::optional<Bound> least;
    std::optional<Bound> most;
  };
  Range range_of(const Facts& facts, bool is_integer);
  std::optional<Value> write_string(const Facts& facts);
  Value write_format(const Format& format);

  // Counts work, and fails if it exceeds the limit.
  Result<void> work(std::int64_t more);
  void settle(Facts& facts) const;
  void limit_choices(Facts& facts);
  Result<bool> are_disjoint(const Choice& choice, const Facts& rest);
  struct Way;
  Result<bool> are_disjoint(const Way& one, const Way& other);
  bool lacks_required_of(const Way& one, const Way& other) const;
  bool may_be(const Value& literal, const Facts& facts);

  // Lists.
  struct Items;
  Written write_array(const Facts& facts);
  void read_items(const Facts& facts, Items& items);
  Result<void> write_items(const Facts& facts, Items& items);
  static Value assemble(Items items);
  Written write_unique(const Facts& facts, const Items& items);

  // Objects.
  struct Members;
  Written write_object(const Facts& facts);
  void read_members(const Facts& facts, Members& members);
  Schemas schemas_of(const std::string& name, const Facts& facts, const Members& members);
  Result<void> write_names(const Facts& facts, Members& members);
  bool is_allowed(const std::string& name, const Facts& rule);
  Result<bool> write_members(const Facts& facts, Members& members);
  Result<void> write_others(const Facts& facts, Members& members);
  std::optional<Value> assemble(const Facts& facts, Members members);
  const Value* unevaluated(const Facts& facts, const std::vector<const Object*>& schemas,
                           std::string_view keyword, std::string_view all_others);

  void leave_out(const std::vector<const Object*>& schemas, std::string_view keyword) {
    for (const Object* const each : schemas) {
      if (each->contains(keyword)) source_.leave_out(each, keyword);
    }
  }
  Error refuse(std::string what, std::string fix) const {
    return Error(ErrorCode::invalid_argument, std::move(what), std::string(where_), std::move(fix));
  }

  Source& source_;
  std::string_view where_;
  Gathering gathering_;
  bool to_the_letter_;
  std::map<Schemas, std::size_t> known_;
  std::map<const Format*, std::size_t> known_formats_;
  std::set<Schemas> endless_;
  std::vector<Definition> definitions_;
  int depth_ = 0;
  bool writes_names_ = false;  // of properties, where the compiler does not follow $ref
  int other_types_ = 0;        // how often no value had the assumed type
  std::int64_t work_ = 0;
};

// Satisfied by any value, or by any value of a type.
inline Value anything() { return Object(); }
inline Value of_type(std::string_view type) { return object_of({{"type", std::string(type)}}); }

// One of several; nothing if there are none.
std::optional<Value> any_of(std::vector<Value> ways);

// Exactly this value, formatted as a model would write it.
Value exactly(const Value& literal);

}  // namespace motley::grammar::schema
