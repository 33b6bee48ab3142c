#include "serving/forms/tool_form.h"

#include <algorithm>

namespace motley::serving {
namespace {

constexpr PairMarks function_tags = {.before_name = "<function=",
                                     .after_name = ">",
                                     .before_key = "<parameter=",
                                     .after_key = ">",
                                     .before_value = "",
                                     .after_value = "</parameter>",
                                     .close = "</function>",
                                     .lines = true};
constexpr PairMarks argument_tags = {.before_name = "",
                                     .after_name = "",
                                     .before_key = "<arg_key>",
                                     .after_key = "</arg_key>",
                                     .before_value = "<arg_value>",
                                     .after_value = "</arg_value>"};
constexpr PairMarks invoke_tags = {.before_name = "<invoke name=",
                                   .after_name = ">",
                                   .before_key = "<parameter name=",
                                   .after_key = ">",
                                   .before_value = "",
                                   .after_value = "</parameter>",
                                   .close = "</invoke>"};
constexpr PairMarks dsml_tags = {.before_name = "<｜DSML｜invoke name=",
                                 .after_name = ">",
                                 .before_key = "<｜DSML｜parameter name=",
                                 .after_key = ">",
                                 .before_value = "",
                                 .after_value = "</｜DSML｜parameter>",
                                 .close = "</｜DSML｜invoke>"};

constexpr std::string_view json_fence = "```json";

// Distinctive forms first: a template gets the first form whose reader finds the call in its
// output.
constexpr std::array forms = {
    ToolForm{.name = "gpt_oss", .body = CallBody::harmony},
    ToolForm{.name = "deepseek_v4",
             .body = CallBody::pairs,
             .begin = "<｜DSML｜tool_calls>",
             .end = "</｜DSML｜tool_calls>",
             .other_begin = "<｜DSML｜function_calls>",
             .other_end = "</｜DSML｜function_calls>",
             .pairs = &dsml_tags,
             .bare = true},
    ToolForm{.name = "deepseek_v32",
             .body = CallBody::pairs,
             .begin = "<｜DSML｜function_calls>",
             .end = "</｜DSML｜function_calls>",
             .pairs = &dsml_tags,
             .bare = true},
    ToolForm{.name = "deepseek_v3",
             .body = CallBody::named,
             .begin = "<｜tool▁calls▁begin｜>",
             .end = "<｜tool▁calls▁end｜>",
             .call_begin = "<｜tool▁call▁begin｜>",
             .call_end = "<｜tool▁call▁end｜>",
             .separators = {"<｜tool▁sep｜>", json_fence}},
    ToolForm{.name = "deepseek_v31",
             .body = CallBody::named,
             .begin = "<｜tool▁calls▁begin｜>",
             .end = "<｜tool▁calls▁end｜>",
             .call_begin = "<｜tool▁call▁begin｜>",
             .call_end = "<｜tool▁call▁end｜>",
             .separators = {"<｜tool▁sep｜>", json_fence}},
    ToolForm{.name = "kimi_k2",
             .body = CallBody::named,
             .begin = "<|tool_calls_section_begin|>",
             .end = "<|tool_calls_section_end|>",
             .other_begin = "<|tool_call_section_begin|>",
             .other_end = "<|tool_call_section_end|>",
             .call_begin = "<|tool_call_begin|>",
             .call_end = "<|tool_call_end|>",
             .separators = {"<|tool_call_argument_begin|>", json_fence},
             .ids = CallIds::as_written},
    ToolForm{.name = "mistral",
             .body = CallBody::json,
             .begin = "[TOOL_CALLS]",
             .separators = {"[ARGS]", "[CALL_ID]"},
             .ids = CallIds::nine_characters},
    ToolForm{.name = "mistral_v11",
             .body = CallBody::named,
             .begin = "[TOOL_CALLS]",
             .separators = {"[ARGS]", "[CALL_ID]"},
             .ids = CallIds::nine_characters},
    ToolForm{.name = "minimax_m2",
             .body = CallBody::pairs,
             .begin = "<minimax:tool_call>",
             .end = "</minimax:tool_call>",
             .pairs = &invoke_tags,
             .bare = true},
    ToolForm{.name = "seed_oss",
             .body = CallBody::pairs,
             .begin = "<seed:tool_call>",
             .end = "</seed:tool_call>",
             .pairs = &function_tags,
             .bare = true},
    ToolForm{
        .name = "hunyuan", .body = CallBody::json, .begin = "<tool_calls>", .end = "</tool_calls>"},
    ToolForm{.name = "olmo3",
             .body = CallBody::python,
             .begin = "<function_calls>",
             .end = "</function_calls>"},
    ToolForm{
        .name = "gemma4", .body = CallBody::gemma, .begin = "<|tool_call>", .end = "<tool_call|>"},
    ToolForm{.name = "lfm2",
             .body = CallBody::python,
             .begin = "<|tool_call_start|>",
             .end = "<|tool_call_end|>"},
    ToolForm{.name = "granite3",
             .body = CallBody::json,
             .begin = "<|tool_call|>",
             .other_begin = "<tool_call>",
             .other_end = "</tool_call>"},
    ToolForm{.name = "phi4_mini",
             .body = CallBody::json,
             .begin = "functools",
             .other_begin = "<|tool_call|>",
             .other_end = "<|/tool_call|>"},
    ToolForm{
        .name = "nemotron_v2", .body = CallBody::json, .begin = "<TOOLCALL>", .end = "</TOOLCALL>"},
    ToolForm{.name = "glm4",
             .body = CallBody::pairs,
             .begin = "<tool_call>",
             .end = "</tool_call>",
             .pairs = &argument_tags,
             .known_names = true},
    ToolForm{.name = "qwen3_coder",
             .body = CallBody::pairs,
             .begin = "<tool_call>",
             .end = "</tool_call>",
             .pairs = &function_tags,
             .bare = true},
    ToolForm{.name = "hermes",
             .body = CallBody::json,
             .begin = "<tool_call>",
             .end = "</tool_call>",
             .pairs = &function_tags},
    ToolForm{.name = "llama4_pythonic",
             .body = CallBody::python,
             .begin = "<|python_start|>",
             .end = "<|python_end|>",
             .starts_lines = true},
    ToolForm{.name = "llama3_json",
             .body = CallBody::json,
             .begin = "<|python_tag|>",
             .starts_lines = true},
};

constexpr std::array reasonings = {
    ReasoningForm{.name = "seed_oss", .begin = "<seed:think>", .end = "</seed:think>"},
    ReasoningForm{.name = "mistral", .begin = "[THINK]", .end = "[/THINK]"},
    ReasoningForm{.name = "gemma4", .begin = "<|channel>thought", .end = "<channel|>"},
    ReasoningForm{.name = "hunyuan",
                  .begin = "<think>",
                  .end = "</think>",
                  .answer_begin = "<answer>",
                  .answer_end = "</answer>"},
    ReasoningForm{.name = "ernie45",
                  .begin = "<think>",
                  .end = "</think>",
                  .answer_begin = "<response>",
                  .answer_end = "</response>"},
    ReasoningForm{.name = "think", .begin = "<think>", .end = "</think>"},
};

void add_set(std::vector<std::string_view>& list, std::initializer_list<std::string_view> marks) {
  for (const std::string_view mark : marks) {
    if (!mark.empty()) list.push_back(mark);
  }
}

template <typename Form>
const Form* find(std::span<const Form> list, std::string_view name) {
  const auto found = std::ranges::find(list, name, &Form::name);
  return found == list.end() ? nullptr : &*found;
}

}  // namespace

std::vector<std::string_view> ToolForm::marks() const {
  std::vector<std::string_view> list;
  if (body == CallBody::harmony)
    return {"<|channel|>", "<|message|>", "<|start|>",    "<|end|>",
            "<|call|>",    "<|return|>",  "<|constrain|>"};
  add_set(list,
          {begin, end, other_begin, other_end, call_begin, call_end, separators[0], separators[1]});
  if (pairs != nullptr)
    add_set(list, {pairs->before_name, pairs->before_key, pairs->after_key, pairs->before_value,
                   pairs->after_value, pairs->close});
  if (body == CallBody::gemma) list.emplace_back("<|\"|>");
  return list;
}

std::span<const ToolForm> tool_forms() { return forms; }
const ToolForm* find_tool_form(std::string_view name) { return find(tool_forms(), name); }

std::vector<std::string_view> ReasoningForm::marks() const {
  std::vector<std::string_view> list;
  add_set(list, {begin, end, answer_begin, answer_end});
  return list;
}

std::span<const ReasoningForm> reasoning_forms() { return reasonings; }
const ReasoningForm* find_reasoning_form(std::string_view name) {
  return find(reasoning_forms(), name);
}

}  // namespace motley::serving
