#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/json.h"

namespace motley::grammar::schema {

using json::Object;
using json::Value;

// The root of a client's schema, and what is known about it.
class Source {
 public:
  explicit Source(const Value& root);

  const Value& root() const { return root_; }
  // The target of a $ref, or null.
  const Value* find(std::string_view reference) const;
  // Parts have identifiers of their own, relative to which their references are resolved.
  bool has_resources() const { return has_resources_; }
  // Records that a keyword of a schema is not enforced.
  void leave_out(const Object* schema, std::string_view keyword);
  // The recorded places, in the order of the client's text.
  std::vector<std::string> left_out() const;
  // A generated schema that replaces a keyword of another: always the same object, which lives as
  // long as the source.
  const Value* own(Value schema, const Object* origin, std::string_view keyword);

 private:
  const Value& root_;
  std::map<std::string, const Value*, std::less<>> anchors_;
  std::map<const Object*, std::set<std::string_view>> left_out_;
  bool has_resources_ = false;
  std::map<std::pair<const Object*, std::string>, std::unique_ptr<Value>> own_;
  std::map<const Object*, std::pair<const Object*, std::string_view>> origins_;
};

}  // namespace motley::grammar::schema
