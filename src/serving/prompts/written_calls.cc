#include "serving/prompts/written_calls.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "serving/prompts/grammar_formats.h"

namespace motley::serving {

using formats::alternatives;
using formats::constant;
using formats::regex;
using formats::repeated;
using formats::schema;
using formats::sequence;
using formats::token;

struct WrittenCalls::Marks {
  std::string_view form;
  std::string_view begin;  // before the first call
  std::string_view before_name;
  std::string_view after_name;
  std::string_view style;  // of the arguments
  std::string_view after_arguments;
  std::string_view between;  // two calls
  std::string_view end = {};
  // The first mark of a call; text before it is free.
  std::string_view trigger = {};
  bool indexed = false;  // calls are numbered after their names
};

namespace {

constexpr std::string_view name_key = "{\"name\": \"";
constexpr std::string_view arguments_key = "\", \"arguments\": ";

}  // namespace

const WrittenCalls::Marks* WrittenCalls::find(std::string_view form) {
  static constexpr std::array table = {
      Marks{"hermes", "", "<tool_call>\n{\"name\": \"", arguments_key, "json", "}\n</tool_call>",
            "\n", "", "<tool_call>"},
      Marks{"glm4", "", "<tool_call>", "\n", "glm_xml", "\n</tool_call>", "\n", "", "<tool_call>"},
      Marks{"qwen3_coder", "", "<tool_call>\n<function=", ">\n", "qwen_xml",
            "\n</function>\n</tool_call>", "\n", "", "<tool_call>"},
      Marks{"seed_oss", "", "<seed:tool_call>\n<function=", ">\n", "qwen_xml",
            "\n</function>\n</seed:tool_call>", "\n", "", "<seed:tool_call>"},
      Marks{"minimax_m2", "<minimax:tool_call>\n", "<invoke name=\"", "\">\n", "minimax_xml",
            "\n</invoke>", "\n", "\n</minimax:tool_call>", "<minimax:tool_call>"},
      Marks{"deepseek_v32", "<｜DSML｜function_calls>\n", "<｜DSML｜invoke name=\"", "\">\n",
            "deepseek_xml", "\n</｜DSML｜invoke>", "\n", "\n</｜DSML｜function_calls>",
            "<｜DSML｜function_calls>"},
      Marks{"deepseek_v4", "<｜DSML｜tool_calls>\n", "<｜DSML｜invoke name=\"", "\">\n",
            "deepseek_xml", "\n</｜DSML｜invoke>", "\n", "\n</｜DSML｜tool_calls>",
            "<｜DSML｜tool_calls>"},
      Marks{"deepseek_v3", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
            "\n```json\n", "json", "\n```<｜tool▁call▁end｜>", "\n", "<｜tool▁calls▁end｜>",
            "<｜tool▁calls▁begin｜>"},
      Marks{"deepseek_v31", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
            "json", "<｜tool▁call▁end｜>", "", "<｜tool▁calls▁end｜>", "<｜tool▁calls▁begin｜>"},
      Marks{"kimi_k2", "<|tool_calls_section_begin|>", "<|tool_call_begin|>functions.",
            "<|tool_call_argument_begin|>", "json", "<|tool_call_end|>", "",
            "<|tool_calls_section_end|>", "<|tool_calls_section_begin|>", true},
      Marks{"mistral", "[TOOL_CALLS][", name_key, arguments_key, "json", "}", ", ", "]",
            "[TOOL_CALLS]"},
      Marks{"mistral_v11", "", "[TOOL_CALLS]", "[ARGS]", "json", "", "", "", "[TOOL_CALLS]"},
      Marks{"hunyuan", "<tool_calls>[", name_key, arguments_key, "json", "}", ", ",
            "]</tool_calls>", "<tool_calls>"},
      Marks{"granite3", "<|tool_call|>[", name_key, arguments_key, "json", "}", ", ", "]",
            "<|tool_call|>"},
      Marks{"phi4_mini", "functools[", name_key, arguments_key, "json", "}", ", ", "]",
            "functools"},
      Marks{"nemotron_v2", "<TOOLCALL>[", name_key, arguments_key, "json", "}", ", ",
            "]</TOOLCALL>", "<TOOLCALL>"},
      // No grammar can express its own literals; its reader accepts JSON between the same marks.
      Marks{"lfm2", "<|tool_call_start|>[", name_key, arguments_key, "json", "}", ", ",
            "]<|tool_call_end|>", "<|tool_call_start|>"},
      Marks{"llama3_json", "", name_key, "\", \"parameters\": ", "json", "}", "; ", "",
            "{\"name\": \""},
  };
  const auto* const found = std::ranges::find(table, form, &Marks::form);
  return found == table.end() ? nullptr : found;
}

std::optional<WrittenCalls> WrittenCalls::of(const ToolForm& form,
                                             std::span<const SpecialToken> special) {
  const Marks* const marks = find(form.name);
  if (marks == nullptr) return std::nullopt;
  return WrittenCalls(*marks, special);
}

bool WrittenCalls::in_json() const { return marks_->style == "json"; }

std::string WrittenCalls::head_of(std::string_view name, std::size_t index) const {
  return cat(marks_->begin, marks_->before_name, name,
             marks_->indexed ? cat(":", index) : std::string(), marks_->after_name);
}

json::Object WrittenCalls::after_head(const CallableFunction& function) const {
  json::Array parts;
  parts.emplace_back(schema(function.parameters, marks_->style));
  append(parts, marks_->after_arguments);
  append(parts, marks_->end);
  return sequence(std::move(parts));
}

const SpecialToken* WrittenCalls::special_at(std::string_view text) const {
  const SpecialToken* longest = nullptr;
  for (const SpecialToken& token : special_) {
    const bool longer = longest == nullptr || token.text.size() > longest->text.size();
    if (longer && !token.text.empty() && text.starts_with(token.text)) longest = &token;
  }
  return longest;
}

void WrittenCalls::append(json::Array& parts, std::string_view text) const {
  std::size_t plain = 0;
  for (std::size_t at = 0; at < text.size();) {
    const SpecialToken* const special = special_at(text.substr(at));
    if (special == nullptr) {
      ++at;
      continue;
    }
    if (at > plain) parts.emplace_back(constant(text.substr(plain, at - plain)));
    parts.emplace_back(token(special->id));
    plain = at += special->text.size();
  }
  if (plain < text.size()) parts.emplace_back(constant(text.substr(plain)));
}

json::Object WrittenCalls::call(const CallableFunction& function, std::size_t skipped,
                                std::string_view end) const {
  json::Array parts;
  append(parts,
         cat(marks_->before_name.substr(skipped), function.name, marks_->indexed ? ":" : ""));
  if (marks_->indexed) parts.emplace_back(regex("[0-9]{1,3}"));
  append(parts, marks_->after_name);
  parts.emplace_back(schema(function.parameters, marks_->style));
  append(parts, end);
  return sequence(std::move(parts));
}

json::Object WrittenCalls::any_call(std::span<const CallableFunction> functions,
                                    std::size_t skipped, std::string_view end) const {
  json::Array each;
  for (const CallableFunction& function : functions)
    each.emplace_back(call(function, skipped, end));
  return each.size() == 1 ? *each.front().if_object() : alternatives(std::move(each));
}

void WrittenCalls::append_calls(json::Array& parts, std::span<const CallableFunction> functions,
                                bool several) const {
  parts.emplace_back(any_call(functions, 0, marks_->after_arguments));
  if (!several) return;
  json::Array more;
  append(more, marks_->between);
  more.emplace_back(any_call(functions, 0, marks_->after_arguments));
  parts.emplace_back(repeated(sequence(std::move(more))));
}

json::Object WrittenCalls::calls(std::span<const CallableFunction> functions, bool several) const {
  json::Array parts;
  append(parts, marks_->begin);
  append_calls(parts, functions, several);
  append(parts, marks_->end);
  return sequence(std::move(parts));
}

json::Object WrittenCalls::tag(std::string_view trigger, json::Object content,
                               std::string_view end) const {
  const auto mark = [&](std::string_view text) -> json::Value {
    const SpecialToken* const special = special_at(text);
    if (special != nullptr && special->text == text) return token(special->id);
    return std::string(text);
  };
  return json::Object(
      {{"begin", mark(trigger)}, {"content", std::move(content)}, {"end", mark(end)}});
}

// Text is free between tags, so each tag covers everything that belongs together. A tag ends with a
// special token of its own, or with text that contains none.
json::Object WrittenCalls::calls_in_text(std::span<const CallableFunction> functions,
                                         bool several) const {
  const std::string_view trigger = marks_->trigger;
  const bool sections = !marks_->begin.empty();
  std::string_view end = sections ? marks_->end : marks_->after_arguments;
  std::string_view before_end;
  for (std::size_t at = 0; at < end.size(); ++at) {
    const SpecialToken* const special = special_at(end.substr(at));
    if (special == nullptr || at + special->text.size() != end.size()) continue;
    before_end = end.substr(0, at);
    end.remove_prefix(at);
    break;
  }
  json::Array content;
  if (sections) {
    append(content, marks_->begin.substr(trigger.size()));
    append_calls(content, functions, several);
    append(content, before_end);
  } else {
    content.emplace_back(any_call(functions, trigger.size(), before_end));
  }
  const SpecialToken* const special = special_at(trigger);
  const bool by_token = special != nullptr && special->text == trigger;
  const json::Value first = by_token ? json::Value(special->id) : json::Value(std::string(trigger));
  return json::Object{{"type", by_token ? "token_triggered_tags" : "triggered_tags"},
                      {by_token ? "trigger_tokens" : "triggers", json::Array{first}},
                      {"tags", json::Array{tag(trigger, sequence(std::move(content)), end)}},
                      {"at_least_one", false},
                      {"stop_after_first", !several}};
}

}  // namespace motley::serving
