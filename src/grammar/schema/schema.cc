#include "grammar/schema/schema.h"

#include <optional>
#include <utility>

#include "base/cat.h"
#include "grammar/check/check.h"
#include "grammar/schema/facts.h"
#include "grammar/schema/writer.h"

namespace motley::grammar {
namespace {

using json::Object;
using json::Value;

constexpr std::size_t max_unenforced = 64;
constexpr int max_depth = 1000;

// A format of a structural tag with its schemas rewritten. `place` prefixes the names of keywords
// that are not enforced.
Result<Value> read_format(const Value& format, const std::string& place,
                          std::vector<std::string>& unenforced) {
  if (const json::Array* const list = format.if_array()) {
    json::Array read;
    for (std::size_t i = 0; i < list->size(); ++i) {
      MOTLEY_TRY(Value each, read_format((*list)[i], cat(place, i, "."), unenforced));
      read.push_back(std::move(each));
    }
    return Value(std::move(read));
  }
  const Object* const object = format.if_object();
  if (object == nullptr) return format;
  const bool is_schema = object->contains("json_schema");
  std::vector<json::Member> members;
  for (const json::Member& member : object->members()) {
    if (member.key == "json_schema") {
      MOTLEY_TRY(ReadableSchema schema, read_schema(member.value, "tools"));
      for (const std::string& each : schema.unenforced) {
        if (unenforced.size() < max_unenforced) unenforced.push_back(cat(place, each));
      }
      members.push_back({member.key, std::move(schema.schema)});
    } else if (is_schema) {
      members.push_back(member);
    } else {
      MOTLEY_TRY(Value each, read_format(member.value, cat(place, member.key, "."), unenforced));
      members.push_back({member.key, std::move(each)});
    }
  }
  return Value(schema::object_of(std::move(members)));
}

}  // namespace

Result<ReadableSchema> read_schema(const Value& schema, std::string_view where,
                                   SchemaReading reading) {
  MOTLEY_TRY_VOID(check_schema_value(schema, where));
  schema::Source source(schema);
  schema::SchemaWriter writer(source, where, reading);
  std::optional<Value> body;
  Object definitions;
  do {
    MOTLEY_TRY(body, writer.write_body({&schema}));
    definitions = writer.definitions();
  } while (writer.forget_endless());
  if (!body)
    return Error(
        ErrorCode::invalid_argument, "no value satisfies the schema", std::string(where),
        "look for false, an empty enum, bounds or types that exclude each other, and parts that "
        "recur without an end");
  if (!definitions.empty()) {
    std::vector<json::Member> members(body->if_object()->members().begin(),
                                      body->if_object()->members().end());
    members.push_back({"$defs", std::move(definitions)});
    body = schema::object_of(std::move(members));
  }
  return ReadableSchema{.schema = *std::move(body), .unenforced = source.left_out()};
}

Result<ReadableSpec> read_schemas(const Spec& spec) {
  ReadableSpec read{.spec = spec, .unenforced = {}};
  if (spec.kind == Spec::Kind::json_schema) {
    MOTLEY_TRY(const Value schema, json::parse(spec.text, "JSON schema", {.depth = max_depth}));
    MOTLEY_TRY(ReadableSchema readable, read_schema(schema, "JSON schema"));
    read.spec.text = json::write(readable.schema);
    read.unenforced = std::move(readable.unenforced);
  } else if (spec.kind == Spec::Kind::structural_tag) {
    MOTLEY_TRY(const Value tag, json::parse(spec.text, "tools", {.depth = max_depth}));
    MOTLEY_TRY(const Value readable, read_format(tag, "", read.unenforced));
    read.spec.text = json::write(readable);
  }
  return read;
}

}  // namespace motley::grammar
