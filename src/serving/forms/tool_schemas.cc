#include "serving/forms/tool_schemas.h"

#include <set>
#include <utility>

#include "grammar/schema/source.h"

namespace motley::serving {
namespace {

using Parameters = std::map<std::string, JsonTypes, std::less<>>;

constexpr int max_depth = 64;        // of nested schemas for the same value
constexpr int max_visited = 10'000;  // schemas visited for one parameter

// `number` in a schema includes integers.
constexpr JsonTypes numbers = JsonTypes(JsonType::number) | JsonType::integer;

std::optional<JsonTypes> types_named(std::string_view name) {
  if (name == "null") return JsonType::null;
  // Many schemas use Python's names.
  if (name == "boolean" || name == "bool") return JsonType::boolean;
  if (name == "integer" || name == "int") return JsonType::integer;
  if (name == "number" || name == "float") return numbers;
  if (name == "string" || name == "str") return JsonType::string;
  if (name == "array" || name == "list") return JsonType::array;
  if (name == "object" || name == "dict") return JsonType::object;
  return std::nullopt;
}

// The types of a `type` keyword. Names unknown to JSON Schema are ignored.
JsonTypes types_in(const json::Value& type) {
  if (const std::string* const name = type.if_string())
    return types_named(*name).value_or(JsonTypes::all());
  const json::Array* const list = type.if_array();
  if (list == nullptr || list->empty()) return JsonTypes::all();
  JsonTypes types;
  for (const json::Value& each : *list) {
    const std::string* const name = each.if_string();
    types =
        types | (name == nullptr ? std::nullopt : types_named(*name)).value_or(JsonTypes::all());
  }
  return types;
}

// The types of `type`, or if it is absent of the values of `const` or `enum`.
JsonTypes own_types(const json::Object& schema) {
  if (const json::Value* const type = schema.find("type")) return types_in(*type);
  if (const json::Value* const value = schema.find("const")) return type_of(*value);
  const json::Value* const values = schema.find("enum");
  const json::Array* const list = values == nullptr ? nullptr : values->if_array();
  if (list == nullptr || list->empty()) return JsonTypes::all();
  JsonTypes types;
  for (const json::Value& each : *list) types = types | type_of(each);
  return types;
}

// The schemas of `allOf`, `anyOf` or `oneOf`, or null where there are none.
const json::Array* schemas_in(const json::Object& schema, std::string_view keyword) {
  const json::Value* const value = schema.find(keyword);
  const json::Array* const list = value == nullptr ? nullptr : value->if_array();
  return list == nullptr || list->empty() ? nullptr : list;
}

const json::Object* member_object(const json::Object* object, std::string_view key) {
  const json::Value* const value = object == nullptr ? nullptr : object->find(key);
  return value == nullptr ? nullptr : value->if_object();
}

// `combine` merges the types of a parameter that both declare.
template <class Combine>
void merge(Parameters& into, Parameters from, Combine combine) {
  if (into.size() < from.size()) std::swap(into, from);
  while (!from.empty()) {
    auto inserted = into.insert(from.extract(from.begin()));
    if (!inserted.inserted)
      inserted.position->second = combine(inserted.position->second, inserted.node.mapped());
  }
}
void narrow(Parameters& into, Parameters from) {
  merge(into, std::move(from), [](JsonTypes a, JsonTypes b) { return a & b; });
}
void widen(Parameters& into, Parameters from) {
  merge(into, std::move(from), [](JsonTypes a, JsonTypes b) { return a | b; });
}

// Reads one function's `parameters`. Each reference is followed once, so that a schema with many or
// cyclic references costs no more than its size.
class ParametersReader {
 public:
  explicit ParametersReader(const json::Value& root) : root_(root) {}

  Parameters read() {
    collected_.insert(&root_);
    return collect(root_, 0);
  }

 private:
  // The parameters that a schema of all arguments declares.
  Parameters collect(const json::Value& schema, int depth) {
    Parameters found;
    const json::Object* const object = schema.if_object();
    if (object == nullptr || depth > max_depth) return found;
    if (const json::Object* const properties = member_object(object, "properties")) {
      for (const json::Member& each : properties->members()) {
        visited_ = 0;
        found.emplace(each.key, types_of(each.value, 0));
      }
    }
    if (const json::Value* const target = target_of(*object);
        target != nullptr && collected_.insert(target).second)
      narrow(found, collect(*target, depth + 1));
    if (const json::Array* const all = schemas_in(*object, "allOf")) {
      for (const json::Value& each : *all) narrow(found, collect(each, depth + 1));
    }
    for (const std::string_view keyword : {"anyOf", "oneOf"}) {
      const json::Array* const ways = schemas_in(*object, keyword);
      if (ways == nullptr) continue;
      Parameters any;
      for (const json::Value& each : *ways) widen(any, collect(each, depth + 1));
      narrow(found, std::move(any));
    }
    return found;
  }

  // The types of one value. Schemas that cannot be followed allow everything.
  JsonTypes types_of(const json::Value& schema, int depth) {
    if (const bool* const all = schema.if_boolean())
      return *all ? JsonTypes::all() : JsonTypes::none();
    const json::Object* const object = schema.if_object();
    if (object == nullptr || depth > max_depth || ++visited_ > max_visited) return JsonTypes::all();
    JsonTypes types = own_types(*object);
    if (const json::Value* const target = target_of(*object))
      types = types & types_of_target(*target, depth + 1);
    if (const json::Array* const all = schemas_in(*object, "allOf")) {
      for (const json::Value& each : *all) types = types & types_of(each, depth + 1);
    }
    for (const std::string_view keyword : {"anyOf", "oneOf"}) {
      const json::Array* const ways = schemas_in(*object, keyword);
      if (ways == nullptr) continue;
      JsonTypes any;
      for (const json::Value& each : *ways) any = any | types_of(each, depth + 1);
      types = types & any;
    }
    const json::Value* const nullable = object->find("nullable");
    if (nullable != nullptr && nullable->if_boolean() != nullptr && *nullable->if_boolean())
      types = types | JsonType::null;
    return types;
  }

  JsonTypes types_of_target(const json::Value& target, int depth) {
    // A reference to itself allows everything.
    const auto [known, is_new] = known_.try_emplace(&target, JsonTypes::all());
    if (is_new) known->second = types_of(target, depth);
    return known->second;
  }

  const json::Value* target_of(const json::Object& schema) {
    const json::Value* const reference = schema.find("$ref");
    if (reference == nullptr || reference->if_string() == nullptr) return nullptr;
    if (!source_) source_.emplace(root_);
    return source_->find(*reference->if_string());
  }

  const json::Value& root_;
  std::optional<grammar::schema::Source> source_;  // created for the first reference
  std::set<const json::Value*> collected_;
  std::map<const json::Value*, JsonTypes> known_;
  int visited_ = 0;
};

}  // namespace

JsonType type_of(const json::Value& value) {
  switch (value.kind()) {
    case json::Kind::null:
      return JsonType::null;
    case json::Kind::boolean:
      return JsonType::boolean;
    case json::Kind::integer:
      return JsonType::integer;
    case json::Kind::number:
      return value.if_big_integer() == nullptr ? JsonType::number : JsonType::integer;
    case json::Kind::string:
      return JsonType::string;
    case json::Kind::array:
      return JsonType::array;
    case json::Kind::object:
      break;
  }
  return JsonType::object;
}

ToolSchemas::ToolSchemas(const json::Value& tools) {
  const json::Array* const list = tools.if_array();
  if (list == nullptr) return;
  for (const json::Value& tool : *list) {
    const json::Object* const function = member_object(tool.if_object(), "function");
    const json::Value* const name = function == nullptr ? nullptr : function->find("name");
    if (name == nullptr || name->if_string() == nullptr) continue;
    Parameters& declared = functions_[*name->if_string()];
    // A name that occurs twice may mean either function.
    if (const json::Value* const parameters = function->find("parameters"))
      widen(declared, ParametersReader(*parameters).read());
  }
}

std::optional<JsonTypes> ToolSchemas::types_of(std::string_view function,
                                               std::string_view parameter) const {
  const auto declared = functions_.find(function);
  if (declared == functions_.end()) return std::nullopt;
  const auto types = declared->second.find(parameter);
  if (types == declared->second.end()) return std::nullopt;
  return types->second;
}

bool ToolSchemas::is_string(std::string_view function, std::string_view parameter) const {
  const auto types = types_of(function, parameter);
  return types && types->allows(JsonType::string);
}

}  // namespace motley::serving
