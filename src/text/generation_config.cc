#include "text/generation_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/cat.h"
#include "text/json_file.h"

namespace motley::text {
namespace {

// A number with least <= number <= most.
struct Range {
  double least = 0;
  double most = std::numeric_limits<double>::max();
  bool without_least = false;
};

Result<std::optional<double>> read_number(const json::Object& object, std::string_view key,
                                          std::string_view where, const Range& range) {
  const json::Value* value = object.find_set(key);
  if (value == nullptr) return std::optional<double>();
  const std::string place = cat(where, ", ", key);
  MOTLEY_TRY(const double number, value->as_number(place));
  if (number < range.least || number > range.most || (range.without_least && number == range.least))
    return Error(ErrorCode::bad_file, cat(key, " is ", number), place, "correct or remove it");
  return std::optional(number);
}

Result<std::int32_t> read_id(const json::Value& value, std::string_view place) {
  MOTLEY_TRY(const std::int64_t id, value.as_integer(place));
  if (id < 0 || id > std::numeric_limits<std::int32_t>::max())
    return Error(ErrorCode::bad_file, cat(id, " is no token id"), std::string(place),
                 "correct or remove it");
  return static_cast<std::int32_t>(id);
}

// Loading the model reports what is wrong with it.
void read_vocabulary(const json::Value& value, GenerationConfig& into) {
  const json::Value* const size = value.if_object()->find_set("vocab_size");
  const std::int64_t* const count = size == nullptr ? nullptr : size->if_integer();
  if (count != nullptr) into.vocabulary = *count;
}

}  // namespace

void GenerationConfig::add_end_token(std::int32_t id) {
  const auto at = std::ranges::lower_bound(end_tokens, id);
  if (at == end_tokens.end() || *at != id) end_tokens.insert(at, id);
}

std::vector<std::int32_t> GenerationConfig::drop_unknown_end_tokens() {
  const auto unknown =
      vocabulary ? std::ranges::lower_bound(end_tokens, *vocabulary) : end_tokens.end();
  std::vector<std::int32_t> dropped(unknown, end_tokens.end());
  end_tokens.erase(unknown, end_tokens.end());
  return dropped;
}

Result<void> read_end_tokens(const json::Value& value, std::string_view where,
                             GenerationConfig& into) {
  MOTLEY_TRY(const json::Object* object, value.as_object(where));
  const json::Value* ids = object->find_set("eos_token_id");
  if (ids == nullptr) return {};
  const std::string place = cat(where, ", eos_token_id");
  if (ids->if_array() == nullptr) {
    MOTLEY_TRY(const std::int32_t id, read_id(*ids, place));
    into.add_end_token(id);
    return {};
  }
  for (const json::Value& each : *ids->if_array()) {
    MOTLEY_TRY(const std::int32_t id, read_id(each, place));
    into.add_end_token(id);
  }
  return {};
}

Result<void> read_generation_config(const json::Value& value, std::string_view where,
                                    GenerationConfig& into) {
  MOTLEY_TRY(const json::Object* object, value.as_object(where));
  MOTLEY_TRY(into.temperature, read_number(*object, "temperature", where, {}));
  MOTLEY_TRY(into.top_p, read_number(*object, "top_p", where, {.most = 1}));
  MOTLEY_TRY(into.min_p, read_number(*object, "min_p", where, {.most = 1}));
  MOTLEY_TRY(into.repetition_penalty,
             read_number(*object, "repetition_penalty", where, {.without_least = true}));
  if (const json::Value* top_k = object->find_set("top_k")) {
    const std::string place = cat(where, ", top_k");
    MOTLEY_TRY(const std::int64_t count, top_k->as_integer(place));
    if (count < -1)
      return Error(ErrorCode::bad_file, cat("top_k is ", count), place, "correct or remove it");
    into.top_k = std::max<std::int64_t>(count, 0);
  }
  // do_sample is only written if sampling was switched off on purpose: then its settings are
  // unused.
  if (const json::Value* sample = object->find_set("do_sample")) {
    MOTLEY_TRY(const bool samples, sample->as_boolean(cat(where, ", do_sample")));
    if (!samples) into.temperature = 0.0;
  }
  return read_end_tokens(value, where, into);
}

Result<GenerationConfig> load_generation_config(const std::filesystem::path& folder) {
  GenerationConfig config;
  MOTLEY_TRY(const auto generation, read_json_file(folder / "generation_config.json"));
  if (generation)
    MOTLEY_TRY_VOID(read_generation_config(*generation, "generation_config.json", config));
  MOTLEY_TRY(const auto model, read_json_file(folder / "config.json"));
  if (!model) return config;
  MOTLEY_TRY_VOID(read_end_tokens(*model, "config.json", config));
  read_vocabulary(*model, config);
  // Multimodal models nest the settings of the text part.
  const json::Value* inner = model->if_object()->find_set("text_config");
  if (inner != nullptr) {
    MOTLEY_TRY_VOID(read_end_tokens(*inner, "config.json, text_config", config));
    read_vocabulary(*inner, config);
  }
  return config;
}

}  // namespace motley::text
