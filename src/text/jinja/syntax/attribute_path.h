#pragma once

#include <vector>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/values/value.h"

namespace motley::text::jinja {

// The `attribute` of map, sort, join and so on: "name", "address.city", "pair.0" or a number. An
// empty path is the item itself.
class AttributePath {
 public:
  static Result<AttributePath> read(Runtime& runtime, const Value& attribute);
  // Several paths, separated by commas.
  static Result<std::vector<AttributePath>> read_all(Runtime& runtime, const Value& attribute);

  // The value of an undefined attribute.
  void set_default(const Value& value) { default_ = value; }

  Result<Value> get(Runtime& runtime, const Value& item) const;

 private:
  std::vector<Value> keys_;
  Value default_;
};

}  // namespace motley::text::jinja
