#include "runner/score_input.h"

#include <algorithm>
#include <array>

#include "base/cat.h"
#include "base/system/files.h"

namespace motley::runner {
namespace {

constexpr std::size_t longest_input = std::size_t{1} << 31;

Error bad_line(std::string what, std::string_view where, std::string fix) {
  return {ErrorCode::invalid_argument, std::move(what), std::string(where), std::move(fix)};
}

Result<std::vector<std::int32_t>> read_prompt(const json::Value& prompt, std::string_view where,
                                              const ScoreKnown& known) {
  MOTLEY_TRY(const std::string* const text, prompt.as_string(cat(where, ", prompt")));
  auto tokens = known.encode(*text);
  if (!tokens.ok()) return std::move(tokens).error().within(where);
  if (tokens->empty())
    return bad_line("prompt has no tokens", where, "give at least one character");
  for (const std::int32_t id : *tokens) {
    if (id >= known.vocabulary)
      return bad_line(
          cat("the tokenizer gives id ", id, ", and the model's are 0 to ", known.vocabulary - 1),
          where, "check that tokenizer.json belongs to this model");
  }
  return tokens;
}

Result<std::vector<std::int32_t>> read_tokens(const json::Object& object, std::string_view where,
                                              const ScoreKnown& known) {
  const json::Value* const prompt = object.find("prompt");
  if (prompt != nullptr && object.contains("token_ids"))
    return bad_line("both prompt and token_ids", where, "give one of them");
  if (prompt != nullptr) return read_prompt(*prompt, where, known);
  const json::Value* const field = object.find("token_ids");
  if (field == nullptr)
    return bad_line("no token_ids", where, "give a list of token ids, or a prompt");
  MOTLEY_TRY(const json::Array* const list, field->as_array(cat(where, ", token_ids")));
  if (list->empty()) return bad_line("token_ids is empty", where, "give at least one token");
  std::vector<std::int32_t> tokens;
  tokens.reserve(list->size());
  for (const json::Value& item : *list) {
    MOTLEY_TRY(const std::int64_t id, item.as_integer(cat(where, ", token_ids")));
    if (id < 0 || id >= known.vocabulary)
      return bad_line(cat("token id ", id, " is out of range"), where,
                      cat("ids of this model are 0 to ", known.vocabulary - 1));
    tokens.push_back(static_cast<std::int32_t>(id));
  }
  return tokens;
}

Result<void> check_adapter(const std::string& name, std::string_view where,
                           const std::vector<std::string>& known) {
  if (std::ranges::find(known, name) != known.end()) return {};
  return bad_line(cat("unknown adapter ", quote(name)), where,
                  known.empty() ? "load it with --adapter NAME=PATH"
                                : cat("the adapters loaded are ", join(known)));
}

Result<std::vector<lora::ScaledAdapter>> read_mix(const json::Value& value, std::string_view where,
                                                  const std::vector<std::string>& known) {
  const std::string place = cat(where, ", adapters");
  MOTLEY_TRY(const json::Array* const list, value.as_array(place));
  std::vector<lora::ScaledAdapter> mix;
  for (const json::Value& item : *list) {
    MOTLEY_TRY(const json::Object* const object, item.as_object(place));
    for (const json::Member& member : object->members()) {
      if (member.key != "name" && member.key != "scale")
        return bad_line(cat("unknown field ", quote(member.key)), place,
                        "an adapter of a mix has name and scale");
    }
    const json::Value* const name = object->find("name");
    if (name == nullptr) return bad_line("an adapter without a name", place, "name it");
    MOTLEY_TRY(const std::string* const text, name->as_string(cat(place, ", name")));
    MOTLEY_TRY_VOID(check_adapter(*text, where, known));
    lora::ScaledAdapter adapter{.name = *text};
    if (const json::Value* const scale = object->find("scale")) {
      MOTLEY_TRY(const double number, scale->as_number(cat(place, ", scale")));
      adapter.scale = static_cast<float>(number);
    }
    const auto same = [&](const lora::ScaledAdapter& other) { return other.name == adapter.name; };
    if (std::ranges::any_of(mix, same))
      return bad_line(cat("adapter ", quote(*text), " twice"), place, "add its scales up");
    mix.push_back(std::move(adapter));
  }
  return mix;
}

Result<std::vector<double>> read_reference(const json::Value& value, std::string_view where,
                                           std::size_t tokens) {
  const std::string place = cat(where, ", token_logprobs");
  MOTLEY_TRY(const json::Array* const list, value.as_array(place));
  if (list->size() != tokens)
    return bad_line(cat(list->size(), " reference numbers for ", tokens, " tokens"), place,
                    "give one for each token, null for the first");
  std::vector<double> numbers(tokens, 0.0);
  for (std::size_t i = 1; i < tokens; ++i) {
    MOTLEY_TRY(numbers[i], (*list)[i].as_number(place));
  }
  return numbers;
}

Result<ScoreLine> read_line(std::string_view text, std::string_view where,
                            const ScoreKnown& known) {
  MOTLEY_TRY(const json::Value value, json::parse(text, where));
  MOTLEY_TRY(const json::Object* const object, value.as_object(where));
  // Fields of the output are accepted, so that an output can be an input.
  constexpr std::array<std::string_view, 7> fields = {
      "token_ids", "prompt", "adapter", "adapters", "token_logprobs", "top_ids", "top_logprobs"};
  for (const json::Member& member : object->members()) {
    if (std::ranges::find(fields, std::string_view(member.key)) == fields.end())
      return bad_line(cat("unknown field ", quote(member.key)), where,
                      cat("a line may have ", join(fields)));
  }
  ScoreLine line;
  MOTLEY_TRY(line.tokens, read_tokens(*object, where, known));
  const json::Value* const one = object->find("adapter");
  const json::Value* const several = object->find("adapters");
  if (one != nullptr && several != nullptr)
    return bad_line("both adapter and adapters", where, "give one of them");
  if (one != nullptr && !one->is_null()) {
    MOTLEY_TRY(const std::string* const name, one->as_string(cat(where, ", adapter")));
    MOTLEY_TRY_VOID(check_adapter(*name, where, known.adapters));
    line.adapters.push_back({.name = *name});
    line.adapter_field = *one;
  }
  if (several != nullptr) {
    MOTLEY_TRY(line.adapters, read_mix(*several, where, known.adapters));
    line.adapter_field = *several;
    line.several = true;
  }
  if (const json::Value* const reference = object->find("token_logprobs")) {
    MOTLEY_TRY(line.reference, read_reference(*reference, where, line.tokens.size()));
  }
  return line;
}

}  // namespace

Result<std::vector<ScoreLine>> parse_score_lines(std::string_view text, std::string_view where,
                                                 const ScoreKnown& known) {
  std::vector<ScoreLine> lines;
  std::int64_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    MOTLEY_TRY(ScoreLine parsed, read_line(line, cat(where, ", line ", number), known));
    lines.push_back(std::move(parsed));
  }
  if (lines.empty()) return bad_line("no lines", where, "give one JSON object a line");
  return lines;
}

Result<std::vector<ScoreLine>> read_score_lines(const std::filesystem::path& path,
                                                const ScoreKnown& known) {
  MOTLEY_TRY(const std::string text, read_input(path, longest_input));
  const std::string where = path == "-" ? "standard input" : printable(path.string());
  return parse_score_lines(text, where, known);
}

}  // namespace motley::runner
