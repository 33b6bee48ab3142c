#include "serving/prompts/unenforced.h"

#include <string>
#include <string_view>

#include "base/cat.h"
#include "grammar/schema/schema.h"

namespace motley::serving {
namespace {

// The place of a field's schema.
std::string schema_place(std::string_view field) {
  if (field == "response_format") return "response_format.json_schema.schema";
  return field.ends_with("format") ? cat(field, ".schema") : std::string(field);
}

bool is_strict(const json::Object& function) {
  const json::Value* const strict = function.find_set("strict");
  return strict != nullptr && strict->if_boolean() != nullptr && *strict->if_boolean();
}

Result<void> note(const std::vector<std::string>& found, std::string_view schema, bool strict,
                  Notices& notices) {
  for (const std::string& each : found) {
    std::string place = cat(schema, ".", each);
    if (strict)
      return Error(ErrorCode::unsupported, "no grammar holds what a strict schema asks for", place,
                   "leave it out, or say \"strict\": false");
    add_notice(std::move(place), notices.unenforced);
  }
  return {};
}

}  // namespace

Result<void> note_unenforced(const GenerationSettings& settings, Notices& notices) {
  if (!settings.sampling.grammar) return {};
  const auto read = grammar::read_schemas(*settings.sampling.grammar);
  if (!read.ok())
    return Error(read.error().code(), read.error().what(), std::string(settings.grammar_field),
                 read.error().fix());
  return note(read->unenforced, schema_place(settings.grammar_field), settings.strict_form,
              notices);
}

Result<void> note_unenforced_arguments(const ChatRequest& request, Notices& notices) {
  const json::Array& tools = *request.inputs.tools->if_array();
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const json::Object& function = *tools[i].if_object()->find("function")->if_object();
    const std::string& name = *function.find("name")->if_string();
    if (request.tool_use == ToolUse::one_named && name != request.tool_name) continue;
    const json::Value* const schema = function.find_set("parameters");
    if (schema == nullptr) continue;
    const std::string place = cat("tools[", i, "].", request.parameters_key);
    const auto read = grammar::read_schema(*schema, place);
    if (!read.ok())
      return Error(read.error().code(), read.error().what(), place, read.error().fix());
    MOTLEY_TRY_VOID(note(read->unenforced, place, is_strict(function), notices));
  }
  return {};
}

void note_free_calls(const ChatRequest& request, Notices& notices) {
  if (request.tool_use != ToolUse::free) return;
  const json::Array& tools = *request.inputs.tools->if_array();
  for (std::size_t i = 0; i < tools.size() && !notices_full(notices.unenforced); ++i) {
    if (is_strict(*tools[i].if_object()->find("function")->if_object()))
      add_notice(cat("tools[", i, "].", request.parameters_key), notices.unenforced);
  }
}

}  // namespace motley::serving
