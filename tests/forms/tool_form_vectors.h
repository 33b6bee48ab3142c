#pragma once

#include <array>
#include <string_view>

// Outputs of models in every form with their expected parse: single and multiple calls, surrounding
// text, and malformed calls.
namespace motley::serving::tool_form_vectors {

inline constexpr std::string_view tools = R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object",
    "properties": {
      "city": {"type": "string"},
      "days": {"type": "integer"},
      "metric": {"type": "boolean"},
      "where": {"type": "object"},
      "tags": {"type": "array", "items": {"type": "string"}},
      "unit": {"enum": ["C", "F"]},
      "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
      "share": {"type": ["number", "null"]},
      "mode": {"$ref": "#/$defs/mode"}},
    "$defs": {"mode": {"allOf": [{"type": "string"}, {"minLength": 1}]}}}}},
  {"type": "function", "function": {"name": "ping", "parameters": {
    "type": "object", "properties": {}}}}])";

struct Vector {
  std::string_view form;
  std::string_view reasoning = {};
  bool begun = false;  // by the prompt
  bool one_call = false;
  bool tools_known = true;
  std::string_view text;
  std::string_view expected;
};

inline constexpr auto vectors = std::to_array<Vector>({
    {.form = "hermes",
     .text = "Let me look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
             "\"Bern\", \"days\": 3}}\n</tool_call>",
     .expected = "content: Let me look.\ncall: get_weather {\"city\": \"Bern\", \"days\": 3}\n"},
    {.form = "hermes",
     .text =
         "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", \"days\": "
         "3}}\n</tool_call>\n<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>",
     .expected = "call: get_weather {\"city\": \"Bern\", \"days\": 3}\ncall: ping {}\n"},
    {.form = "hermes",
     .text = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", "
             "\"days\": 3}}\n<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>",
     .expected = "call: get_weather {\"city\": \"Bern\", \"days\": 3}\ncall: ping {}\n"},
    {.form = "hermes",
     .text = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", "
             "\"days\": 3}}\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>",
     .expected = "call: get_weather {\"city\": \"Bern\", \"days\": 3}\ncall: ping {}\n"},
    {.form = "hermes",
     .text = "<tool_call>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", "
             "\"days\": 3}}, {\"name\": \"ping\", \"arguments\": {}}]</tool_call>",
     .expected = "call: get_weather {\"city\": \"Bern\", \"days\": 3}\ncall: ping {}\n"},
    {.form = "hermes",
     .text = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", "
             "\"days\": 3}}\nThat is all I need.",
     .expected =
         "call: get_weather {\"city\": \"Bern\", \"days\": 3}\ncontent: That is all I need.\n"},
    {.form = "hermes",
     .text = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", "
             "\"days\": 3}}\n</tool_call>\nThat is all I need.",
     .expected =
         "call: get_weather {\"city\": \"Bern\", \"days\": 3}\ncontent: That is all I need.\n"},
    {.form = "hermes",
     .text = "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", \"days\": "
             "3}</tool_call> Done.",
     .expected = "call: get_weather {\"city\": \"Bern\", \"days\": 3}\ncontent: Done.\n"},
    {.form = "hermes",
     .text = "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", \"days\": "
             "3}}}</tool_call> Done.",
     .expected = "call: get_weather {\"city\": \"Bern\", \"days\": 3}\ncontent: Done.\n"},
    {.form = "hermes",
     .text = "<tool_call>nothing of it</tool_call> rest",
     .expected = "content: <tool_call>nothing of it</tool_call> rest\n"},
    {.form = "hermes",
     .text = "Use <tool_call> and </tool_call> for that.",
     .expected = "content: Use <tool_call> and </tool_call> for that.\n"},
    {.form = "hermes",
     .text =
         "<tool_call>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Bern\"}}</tool_call>",
     .expected = "call: get_weather {\"city\": \"Bern\"}\n"},
    {.form = "hermes",
     .text =
         "<tool_call>{\"arguments\": {\"city\": \"Bern\"}, \"name\": \"get_weather\"}</tool_call>",
     .expected = "call: get_weather {\"city\":\"Bern\"}\n"},
    {.form = "hermes",
     .text = "<tool_call>{\"name\": \"get_weather\", \"arguments\": \"{\\\"city\\\": "
             "\\\"Bern\\\"}\"}</tool_call>",
     .expected = "call: get_weather {\"city\": \"Bern\"}\n"},
    {.form = "hermes",
     .text = "<tool_call>{'name': 'get_weather', 'arguments': {'city': 'Bern', 'metric': True, "
             "'note': None}}</tool_call>",
     .expected = "call: get_weather {\"city\":\"Bern\",\"metric\":true,\"note\":null}\n"},
    {.form = "hermes",
     .text = "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"ping\", "
             "\"arguments\": {}}}</tool_call>",
     .expected = "call: ping {}\n"},
    {.form = "hermes",
     .text = "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Ber",
     .expected = "call: get_weather {\"city\": \"Ber\n"},
    {.form = "hermes",
     .text = "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}, \"id\": "
             "\"x1\"}</tool_call>",
     .expected = "call: get_weather {\"city\": \"Bern\"}\n"},
    {.form = "hermes",
     .text = "<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\n</parameter>\n</"
             "function>\n</tool_call>",
     .expected = "call: get_weather {\"city\":\"Bern\"}\n"},
    {.form = "hermes",
     .reasoning = "think",
     .text = "<think>\nI must look.\n</think>\n\n<tool_call>\n{\"name\": \"get_weather\", "
             "\"arguments\": {\"city\": \"Bern\", \"days\": 3}}\n</tool_call>",
     .expected = "reasoning: I must look.\ncall: get_weather {\"city\": \"Bern\", \"days\": 3}\n"},
    {.form = "hermes",
     .reasoning = "think",
     .begun = true,
     .text = "I must look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
             "\"Bern\", \"days\": 3}}\n</tool_call>",
     .expected = "reasoning: I must look.\ncall: get_weather {\"city\": \"Bern\", \"days\": 3}\n"},
    {.form = "hermes",
     .reasoning = "think",
     .begun = true,
     .text = "I must look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
             "\"Bern\", \"days\": 3}}\n</tool_call> perhaps.\n</think>\nNo.",
     .expected = "reasoning: I must look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
                 "{\"city\": \"Bern\", \"days\": 3}}\n</tool_call> perhaps.\ncontent: No.\n"},
    {.form = "hermes",
     .reasoning = "think",
     .begun = true,
     .text = "I think of <tool_call> as a tag",
     .expected = "reasoning: I think of <tool_call> as a tag\n"},
    {.form = "hermes",
     .reasoning = "think",
     .begun = true,
     .text = "<think>\nSo.\n</think>\nYes.",
     .expected = "reasoning: So.\ncontent: Yes.\n"},
    {.form = "hermes",
     .one_call = true,
     .text = "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", \"days\": "
             "3}}</tool_call> <tool_call>{\"name\": \"ping\", \"arguments\": {}}</tool_call> more",
     .expected = "call: get_weather {\"city\": \"Bern\", \"days\": 3}\n"},
    {.form = "qwen3_coder",
     .text = "Let me "
             "look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\n</"
             "parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
     .expected = "content: Let me look.\ncall: get_weather {\"city\":\"Bern\",\"days\":3}\n"},
    {.form = "qwen3_coder",
     .text = "<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\n</"
             "parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</"
             "tool_call>\n<tool_call>\n<function=ping>\n</function>\n</tool_call>",
     .expected = "call: get_weather {\"city\":\"Bern\",\"days\":3}\ncall: ping {}\n"},
    {.form = "qwen3_coder",
     .text = "I "
             "look.\n<function=get_weather>\n<parameter=city>\nBern\n</"
             "parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
     .expected = "content: I look.\ncall: get_weather {\"city\":\"Bern\",\"days\":3}\n"},
    {.form = "qwen3_coder",
     .text = "<function=get_weather>\n<parameter=city>\nBern\n</parameter>\n<parameter=days>\n3\n</"
             "parameter>\n</function>\nThat is all.",
     .expected = "call: get_weather {\"city\":\"Bern\",\"days\":3}\ncontent: That is all.\n"},
    {.form = "qwen3_coder",
     .text = "<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\n</"
             "parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n<function=ping>\n</"
             "function>\n</tool_call>",
     .expected = "call: get_weather {\"city\":\"Bern\",\"days\":3}\ncall: ping {}\n"},
    {.form = "qwen3_coder",
     .text = "<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\n<parameter=days>\n3\n</"
             "function>\n</tool_call>",
     .expected = "call: get_weather {\"city\":\"Bern\",\"days\":3}\n"},
    {.form = "qwen3_coder",
     .text = "<function=get_weather><parameter=city>Bern<parameter=days>3</function>",
     .expected = "call: get_weather {\"city\":\"Bern\",\"days\":3}\n"},
    {.form = "qwen3_coder",
     .text = "<tool_call><function=get_weather><parameter=metric>True</"
             "parameter><parameter=note>None</parameter><parameter=share>None</"
             "parameter><parameter=where>{'lat': 1.5, 'ok': True}</parameter><parameter=tags>['a', "
             "'b']</parameter><parameter=unit>C</parameter><parameter=mode>5</parameter></"
             "function></tool_call>",
     .expected = "call: get_weather "
                 "{\"metric\":true,\"note\":\"None\",\"share\":null,\"where\":{\"lat\":1.5,\"ok\":"
                 "true},\"tags\":[\"a\",\"b\"],\"unit\":\"C\",\"mode\":\"5\"}\n"},
    {.form = "qwen3_coder",
     .text = "<tool_call><function=get_weather><parameter=days>12345678901234567890</"
             "parameter><parameter=city>007</parameter></function></tool_call>",
     .expected = "call: get_weather {\"days\":12345678901234567890,\"city\":\"007\"}\n"},
    {.form = "qwen3_coder",
     .text = "<tool_call><function=get_weather><parameter=city>Bern</"
             "parameter><parameter=city>Basel</parameter></function></tool_call>",
     .expected = "call: get_weather {\"city\":\"Bern\",\"city\":\"Basel\"}\n"},
    {.form = "qwen3_coder",
     .text = "<tool_call><function=get_weather><parameter=city>Bern</parameter> and "
             "<parameter=days>3</parameter></function></tool_call>",
     .expected = "call: get_weather {\"city\":\"Bern\",\"days\":3}\ncontent: and\n"},
    {.form = "qwen3_coder",
     .text = "<tool_call><function=get_weather><parameter=city>Bern</parameter></function></"
             "tool_call> Bye.",
     .expected = "call: get_weather {\"city\":\"Bern\"}\ncontent: Bye.\n"},
    {.form = "qwen3_coder",
     .text =
         "<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\n</parameter>\nNow I wait.",
     .expected = "call: get_weather {\"city\":\"Bern\"}\ncontent: Now I wait.\n"},
    {.form = "qwen3_coder",
     .text = "<tool_call><function=get_weather><parameter=city>a </function> "
             "b</parameter></function></tool_call>",
     .expected = "call: get_weather {\"city\":\"a </function> b\"}\n"},
    {.form = "qwen3_coder",
     .text = "Write <function=NAME> for a call.",
     .expected = "content: Write <function=NAME> for a call.\n"},
    {.form = "qwen3_coder",
     .text = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", "
             "\"days\": 3}}\n</tool_call>",
     .expected = "call: get_weather {\"city\": \"Bern\", \"days\": 3}\n"},
    {.form = "qwen3_coder",
     .text = "<tool_call><function=get_weather>{\"city\": \"Bern\"}</function></tool_call>",
     .expected = "call: get_weather {\"city\": \"Bern\"}\n"},
    {.form = "qwen3_coder",
     .text = "<tool_call>\n<function=get_weather>\n<parameter=city>\nBe",
     .expected = "call: get_weather {\"city\":\"Be\n"},
    {.form = "glm4",
     .text = "Let me "
             "look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Bern</"
             "arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
     .expected = "content: Let me look.\ncall: get_weather {\"city\":\"Bern\",\"days\":3}\n"},
    {.form = "glm4",
     .text = "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Bern</arg_value></"
             "tool_call><tool_call>ping</tool_call>",
     .expected = "call: get_weather {\"city\":\"Bern\"}\ncall: ping {}\n"},
    {.form = "glm4", .text = "<tool_call>ping\n</tool_call>", .expected = "call: ping {}\n"},
    {.form = "glm4",
     .text = "<tool_call>lose</tool_call>",
     .expected = "content: <tool_call>lose</tool_call>\n"},
    {.form = "glm4",
     .tools_known = false,
     .text = "<tool_call>lose</tool_call>",
     .expected = "call: lose {}\n"},
    {.form = "glm4",
     .text = "<tool_call>I do not know.</tool_call>",
     .expected = "content: <tool_call>I do not know.</tool_call>\n"},
    {.form = "glm4",
     .text = "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", \"days\": "
             "3}}</tool_call>",
     .expected = "call: get_weather {\"city\": \"Bern\", \"days\": 3}\n"},
    {.form = "glm4",
     .text = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Bern\n<arg_key>days</"
             "arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
     .expected = "call: get_weather {\"city\":\"Bern\",\"days\":3}\n"},
    {.form = "glm4",
     .text = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\nThat "
             "is it.",
     .expected = "call: get_weather {\"city\":\"Bern\"}\ncontent: That is it.\n"},
    {.form = "glm4",
     .text = "<tool_call>get_weather city</arg_key><arg_value>Bern</arg_value></tool_call>",
     .expected =
         "content: <tool_call>get_weather city</arg_key><arg_value>Bern</arg_value></tool_call>\n"},
    {.form = "deepseek_v3",
     .text = "I "
             "look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n``"
             "`json\n{\"city\": "
             "\"Bern\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>ping\n`"
             "``json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     .expected = "content: I look.\ncall: get_weather {\"city\": \"Bern\"}\ncall: ping {}\n"},
    {.form = "deepseek_v3",
     .text = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>ping\n{}<"
             "｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     .expected = "call: ping {}\n"},
    {.form = "deepseek_v3",
     .text = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```"
             "json\n{\"city\": \"Bern\"}\n```<｜tool▁call▁end｜> so far",
     .expected = "call: get_weather {\"city\": \"Bern\"}\ncontent: so far\n"},
    {.form = "deepseek_v3",
     .text = "<｜tool▁calls▁begin｜> I will not.",
     .expected = "content: <｜tool▁calls▁begin｜> I will not.\n"},
    {.form = "deepseek_v31",
     .text =
         "I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": "
         "\"Bern\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>ping<｜tool▁sep｜>{}<｜tool▁call▁end｜><"
         "｜tool▁calls▁end｜>",
     .expected = "content: I look.\ncall: get_weather {\"city\": \"Bern\"}\ncall: ping {}\n"},
    {.form = "deepseek_v31",
     .text = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>not "
             "JSON<｜tool▁call▁end｜><｜tool▁call▁begin｜>ping<｜tool▁sep｜>{}<｜tool▁call▁end｜><"
             "｜tool▁calls▁end｜>",
     .expected = "content: <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>not "
                 "JSON<｜tool▁call▁end｜>\ncall: ping {}\n"},
    {.form = "deepseek_v31",
     .reasoning = "think",
     .begun = true,
     .text = "Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>ping<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
             "<｜tool▁calls▁end｜>",
     .expected = "reasoning: Hm.\ncall: ping {}\n"},
    {.form = "deepseek_v32",
     .text = "I look.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke "
             "name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" "
             "string=\"true\">Bern</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
             "string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke "
             "name=\"ping\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     .expected =
         "content: I look.\ncall: get_weather {\"city\":\"Bern\",\"days\":3}\ncall: ping {}\n"},
    {.form = "deepseek_v32",
     .text = "<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" "
             "string=\"true\">Bern</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
             "string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke "
             "name=\"ping\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     .expected = "call: get_weather {\"city\":\"Bern\",\"days\":3}\ncall: ping {}\n"},
    {.form = "deepseek_v32",
     .text =
         "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
         "name=\"city\" string=\"false\">\"Bern\"</｜DSML｜parameter>\n<｜DSML｜parameter "
         "name=\"days\" string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke "
         "name=\"ping\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls> end",
     .expected = "call: get_weather {\"city\":\"Bern\",\"days\":3}\ncall: ping {}\ncontent: end\n"},
    {.form = "deepseek_v4",
     .text =
         "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
         "name=\"city\" string=\"true\">Bern</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
         "string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke "
         "name=\"ping\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
     .expected = "call: get_weather {\"city\":\"Bern\",\"days\":3}\ncall: ping {}\n"},
    {.form = "kimi_k2",
     .text = "I "
             "look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_"
             "call_argument_begin|>{\"city\": "
             "\"Bern\"}<|tool_call_end|><|tool_call_begin|>functions.ping:1<|tool_call_argument_"
             "begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
     .expected = "content: I look.\ncall: get_weather {\"city\": \"Bern\"} id "
                 "functions.get_weather:0\ncall: ping {} id functions.ping:1\n"},
    {.form = "kimi_k2",
     .reasoning = "think",
     .begun = true,
     .text = "I "
             "look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_"
             "call_argument_begin|>{\"city\": "
             "\"Bern\"}<|tool_call_end|><|tool_call_begin|>functions.ping:1<|tool_call_argument_"
             "begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
     .expected = "reasoning: I look.\ncall: get_weather {\"city\": \"Bern\"} id "
                 "functions.get_weather:0\ncall: ping {} id functions.ping:1\n"},
    {.form = "kimi_k2",
     .text = "<|tool_call_begin|>ping:0<|tool_call_argument_begin|>{}<|tool_call_end|> ok",
     .expected = "call: ping {} id ping:0\ncontent: ok\n"},
    {.form = "kimi_k2",
     .text = "<|tool_calls_section_begin|><|tool_call_begin|>functions.ping:3<|tool_call_argument_"
             "begin|><|tool_call_end|><|tool_calls_section_end|>",
     .expected = "call: ping {} id functions.ping:3\n"},
    {.form = "kimi_k2",
     .text = "<|tool_calls_section_begin|><|tool_call_begin|>call_abc<|tool_call_argument_begin|>"
             "oops<|tool_call_end|><|tool_calls_section_end|>",
     .expected = "content: "
                 "<|tool_calls_section_begin|><|tool_call_begin|>call_abc<|tool_call_argument_"
                 "begin|>oops<|tool_call_end|><|tool_calls_section_end|>\n"},
    {.form = "mistral",
     .text = "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", "
             "\"days\": 3}}, {\"name\": \"ping\", \"arguments\": {}}]",
     .expected = "call: get_weather {\"city\": \"Bern\", \"days\": 3}\ncall: ping {}\n"},
    {.form = "mistral",
     .text = "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", "
             "\"days\": 3}}] Then we see.",
     .expected = "call: get_weather {\"city\": \"Bern\", \"days\": 3}\ncontent: Then we see.\n"},
    {.form = "mistral",
     .text = "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Bern\"}",
     .expected = "call: get_weather {\"city\": \"Bern\"}\n"},
    {.form = "mistral",
     .text = "[TOOL_CALLS][{'name': 'ping', 'arguments': {}}]",
     .expected = "call: ping {}\n"},
    {.form = "mistral",
     .text = "[TOOL_CALLS][{\"name\": \"ping\", \"arguments\": {}, \"id\": \"abcdefghi\"}]",
     .expected = "call: ping {}\n"},
    {.form = "mistral_v11",
     .text = "I look.[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{\"city\": "
             "\"Bern\"}[TOOL_CALLS]ping[CALL_ID]jklmnopqr[ARGS]{}",
     .expected = "content: I look.\ncall: get_weather {\"city\": \"Bern\"} id abcdefghi\ncall: "
                 "ping {} id jklmnopqr\n"},
    {.form = "mistral_v11",
     .text = "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Bern\"}[TOOL_CALLS]ping[ARGS]{} end",
     .expected = "call: get_weather {\"city\": \"Bern\"}\ncall: ping {}\ncontent: end\n"},
    {.form = "mistral_v11",
     .text = "[TOOL_CALLS]get_weather{\"city\": \"Bern\"}",
     .expected = "call: get_weather {\"city\": \"Bern\"}\n"},
    {.form = "mistral_v11",
     .reasoning = "mistral",
     .text = "[THINK]So.[/THINK]Yes.[TOOL_CALLS]ping[ARGS]{}",
     .expected = "reasoning: So.\ncontent: Yes.\ncall: ping {}\n"},
    {.form = "mistral_v11",
     .text = "[TOOL_CALLS]I do not know.",
     .expected = "content: [TOOL_CALLS]I do not know.\n"},
    {.form = "llama3_json",
     .text = "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Bern\"}}",
     .expected = "call: get_weather {\"city\": \"Bern\"}\n"},
    {.form = "llama3_json",
     .text = "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Bern\"}}",
     .expected = "call: get_weather {\"city\": \"Bern\"}\n"},
    {.form = "llama3_json",
     .text = "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Bern\"}}; {\"name\": "
             "\"ping\", \"parameters\": {}}",
     .expected = "call: get_weather {\"city\": \"Bern\"}\ncall: ping {}\n"},
    {.form = "llama3_json",
     .text = "I look:\n{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Bern\"}}\nThere.",
     .expected = "content: I look:\ncall: get_weather {\"city\": \"Bern\"}\ncontent: \n\nThere.\n"},
    {.form = "llama3_json",
     .text = "{\"name\": \"Bob\", \"age\": 3}",
     .expected = "content: {\"name\": \"Bob\", \"age\": 3}\n"},
    {.form = "llama3_json",
     .text = "{\"name\": \"Bob\", \"parameters\": {\"age\": 3}}",
     .expected = "content: {\"name\": \"Bob\", \"parameters\": {\"age\": 3}}\n"},
    {.form = "llama3_json", .text = "{\"answer\": 5}", .expected = "content: {\"answer\": 5}\n"},
    {.form = "llama3_json",
     .text = "{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {\"city\": "
             "\"Bern\"}}",
     .expected = "call: get_weather {\"city\":\"Bern\"}\n"},
    {.form = "llama3_json",
     .text = "<|python_tag|>brave_search.call(query=\"x\")",
     .expected = "content: <|python_tag|>brave_search.call(query=\"x\")\n"},
    {.form = "llama3_json",
     .text = "```json\n{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Bern\"}}\n```",
     .expected = "content: ```json\ncall: get_weather {\"city\": \"Bern\"}\ncontent: \n\n```\n"},
    {.form = "llama4_pythonic",
     .text = "[get_weather(city=\"Bern\", days=3), ping()]",
     .expected = "call: get_weather {\"city\":\"Bern\",\"days\":3}\ncall: ping {}\n"},
    {.form = "llama4_pythonic",
     .text = "<|python_start|>[get_weather(city='Bern', metric=True, tags=['a'], where={'x': "
             "None})]<|python_end|>",
     .expected = "call: get_weather "
                 "{\"city\":\"Bern\",\"metric\":true,\"tags\":[\"a\"],\"where\":{\"x\":null}}\n"},
    {.form = "llama4_pythonic", .text = "[1, 2, 3]", .expected = "content: [1, 2, 3]\n"},
    {.form = "llama4_pythonic", .text = "[lose(a=1)]", .expected = "content: [lose(a=1)]\n"},
    {.form = "llama4_pythonic",
     .text = "See [get_weather] for it.",
     .expected = "content: See [get_weather] for it.\n"},
    {.form = "llama4_pythonic",
     .text = "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Bern\"}}",
     .expected = "call: get_weather {\"city\": \"Bern\"}\n"},
    {.form = "llama4_pythonic",
     .text = "[get_weather(city=\"Bern\", days=",
     .expected = "call: get_weather {\"city\":\"Bern\",\"days\":\n"},
    {.form = "minimax_m2",
     .text = "I look.\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter "
             "name=\"city\">Bern</parameter>\n<parameter "
             "name=\"days\">3</parameter>\n</invoke>\n<invoke "
             "name=\"ping\">\n</invoke>\n</minimax:tool_call>",
     .expected =
         "content: I look.\ncall: get_weather {\"city\":\"Bern\",\"days\":3}\ncall: ping {}\n"},
    {.form = "minimax_m2",
     .text = "<invoke name=\"get_weather\">\n<parameter name=\"city\">Bern</parameter>\n<parameter "
             "name=\"days\">3</parameter>\n</invoke>\n<invoke name=\"ping\">\n</invoke>",
     .expected = "call: get_weather {\"city\":\"Bern\",\"days\":3}\ncall: ping {}\n"},
    {.form = "minimax_m2",
     .reasoning = "think",
     .begun = true,
     .text = "<think>\nSo.\n</think>\n\n<minimax:tool_call>\n<invoke "
             "name=\"get_weather\">\n<parameter name=\"city\">Bern</parameter>\n<parameter "
             "name=\"days\">3</parameter>\n</invoke>\n<invoke "
             "name=\"ping\">\n</invoke>\n</minimax:tool_call>",
     .expected =
         "reasoning: So.\ncall: get_weather {\"city\":\"Bern\",\"days\":3}\ncall: ping {}\n"},
    {.form = "minimax_m2",
     .text = "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter "
             "name=\"city\">Bern\n<parameter name=\"days\">3\n</invoke>\n<invoke "
             "name=\"ping\">\n</invoke>\n</minimax:tool_call> end",
     .expected = "call: get_weather {\"city\":\"Bern\",\"days\":3}\ncall: ping {}\ncontent: end\n"},
    {.form = "seed_oss",
     .reasoning = "seed_oss",
     .text = "<seed:think>So.</seed:think>\nI "
             "look.\n\n<seed:tool_call>\n<function=get_weather>\n<parameter=city>Bern</"
             "parameter>\n<parameter=where>{'a': 1.5}</parameter>\n</function>\n</seed:tool_call>",
     .expected = "reasoning: So.\ncontent: I look.\ncall: get_weather "
                 "{\"city\":\"Bern\",\"where\":{\"a\":1.5}}\n"},
    {.form = "seed_oss",
     .text = "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Bern</"
             "parameter>\n<parameter=where>{'a': "
             "1.5}</parameter>\n</function>\n</"
             "seed:tool_call>\n<seed:tool_call>\n<function=get_weather>\n<parameter=city>Bern</"
             "parameter>\n<parameter=where>{'a': 1.5}</parameter>\n</function>\n</seed:tool_call>",
     .expected = "call: get_weather {\"city\":\"Bern\",\"where\":{\"a\":1.5}}\ncall: get_weather "
                 "{\"city\":\"Bern\",\"where\":{\"a\":1.5}}\n"},
    {.form = "hunyuan",
     .reasoning = "hunyuan",
     .text = "<think>\nSo.\n</think>\n<answer>\nI look.<tool_calls>[{\"name\": \"get_weather\", "
             "\"arguments\": {\"city\": \"Bern\", \"days\": 3}}, {\"name\": \"ping\", "
             "\"arguments\": {}}]</tool_calls>\n</answer>",
     .expected = "reasoning: So.\ncontent: I look.\ncall: get_weather {\"city\": \"Bern\", "
                 "\"days\": 3}\ncall: ping {}\n"},
    {.form = "hunyuan",
     .reasoning = "hunyuan",
     .text = "<think>\nSo.\n</think>\n<answer>\nYes.\n</answer>",
     .expected = "reasoning: So.\ncontent: Yes.\n"},
    {.form = "hunyuan",
     .text = "<tool_calls>[]</tool_calls>",
     .expected = "content: <tool_calls>[]</tool_calls>\n"},
    {.form = "hermes",
     .reasoning = "ernie45",
     .begun = true,
     .text = "So.\n</think>\n\n<response>\nYes.\n</response>\n",
     .expected = "reasoning: So.\ncontent: Yes.\n"},
    {.form = "hermes",
     .reasoning = "ernie45",
     .begun = true,
     .text = "So.\n</think>\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
             "\"Bern\", \"days\": 3}}\n</tool_call>\n",
     .expected = "reasoning: So.\ncall: get_weather {\"city\": \"Bern\", \"days\": 3}\n"},
    {.form = "olmo3",
     .text = "<function_calls>get_weather(city=\"Bern\", metric=true)\nping()</function_calls>",
     .expected = "call: get_weather {\"city\":\"Bern\",\"metric\":true}\ncall: ping {}\n"},
    {.form = "olmo3",
     .text = "<function_calls>\nget_weather(city=\"a, (b) \\\"c\\\"\", where={\"x\": [1, "
             "2]})\n</function_calls> done",
     .expected = "call: get_weather {\"city\":\"a, (b) "
                 "\\\"c\\\"\",\"where\":{\"x\":[1,2]}}\ncontent: done\n"},
    {.form = "olmo3",
     .text = "<function_calls>nothing</function_calls>",
     .expected = "content: <function_calls>nothing</function_calls>\n"},
    {.form = "granite3",
     .text = "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", "
             "\"days\": 3}}]",
     .expected = "call: get_weather {\"city\": \"Bern\", \"days\": 3}\n"},
    {.form = "gemma4",
     .text = "<|tool_call>call:get_weather{city:<|\"|>Bern "
             "\"x\"<|\"|>,days:3,tags:[<|\"|>a<|\"|>,<|\"|>b<|\"|>],where:{lat:1.5,on:true}}<tool_"
             "call|><|tool_call>call:ping{}<tool_call|>",
     .expected = "call: get_weather {\"city\":\"Bern "
                 "\\\"x\\\"\",\"days\":3,\"tags\":[\"a\",\"b\"],\"where\":{\"lat\":1.5,\"on\":true}"
                 "}\ncall: ping {}\n"},
    {.form = "gemma4",
     .reasoning = "gemma4",
     .text = "<|channel>thought\nSo.\n<channel|>Yes.<|tool_call>call:get_weather{city:<|\"|>Bern "
             "\"x\"<|\"|>,days:3,tags:[<|\"|>a<|\"|>,<|\"|>b<|\"|>],where:{lat:1.5,on:true}}<tool_"
             "call|>",
     .expected =
         "reasoning: So.\ncontent: Yes.\ncall: get_weather {\"city\":\"Bern "
         "\\\"x\\\"\",\"days\":3,\"tags\":[\"a\",\"b\"],\"where\":{\"lat\":1.5,\"on\":true}}\n"},
    {.form = "gemma4",
     .text = "<|tool_call>call:get_weather{city:Bern,note:None}<tool_call|> end",
     .expected = "call: get_weather {\"city\":\"Bern\",\"note\":null}\ncontent: end\n"},
    {.form = "gemma4",
     .text = "<|tool_call>call:get_weather{\"city\":\"Bern\"}<tool_call|>",
     .expected = "call: get_weather {\"city\":\"Bern\"}\n"},
    {.form = "gemma4",
     .text = "<|tool_call>calling{}<tool_call|>",
     .expected = "content: <|tool_call>calling{}<tool_call|>\n"},
    {.form = "gemma4",
     .text = "<|tool_call>call:get_weather{city:<|\"|>Ber",
     .expected = "call: get_weather {\"city\":\"Ber\n"},
    {.form = "lfm2",
     .text = "I look.<|tool_call_start|>[get_weather(city='Bern', days=3, metric=True), "
             "ping()]<|tool_call_end|> Wait.",
     .expected =
         "content: I look.\ncall: get_weather "
         "{\"city\":\"Bern\",\"days\":3,\"metric\":true}\ncall: ping {}\ncontent:  Wait.\n"},
    {.form = "lfm2",
     .text = "<|tool_call_start|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", "
             "\"days\": 3}}]<|tool_call_end|>",
     .expected = "call: get_weather {\"city\": \"Bern\", \"days\": 3}\n"},
    {.form = "lfm2",
     .text =
         "<|tool_call_start|>[ping()]<|tool_call_end|><|tool_call_start|>[ping()]<|tool_call_end|>",
     .expected = "call: ping {}\ncall: ping {}\n"},
    {.form = "phi4_mini",
     .text = "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", "
             "\"days\": 3}}]<|/tool_call|>",
     .expected = "call: get_weather {\"city\": \"Bern\", \"days\": 3}\n"},
    {.form = "nemotron_v2",
     .text = "<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", \"days\": "
             "3}}]</TOOLCALL>",
     .expected = "call: get_weather {\"city\": \"Bern\", \"days\": 3}\n"},
    {.form = "qwen3_coder",
     .text = "<tool_call>\n<function=get_weather>\n<parameter=city>Bern</function>\nThat is it.",
     .expected = "call: get_weather {\"city\":\"Bern\"}\ncontent: That is it.\n"},
    {.form = "qwen3_coder",
     .text = "<tool_call><function=get_weather><parameter=days>3</function>\nThat is it.",
     .expected = "call: get_weather {\"days\":3}\ncontent: That is it.\n"},
    {.form = "qwen3_coder",
     .text = "<tool_call><function=get_weather><parameter=city>x </parameter> "
             "y\n</parameter></function></tool_call>",
     .expected = "call: get_weather {\"city\":\"x </parameter> y\"}\n"},
    {.form = "qwen3_coder",
     .text = "<tool_call><function=get_weather><parameter=where>{\"a\": "
             "\"</parameter>\"}</parameter></function></tool_call>",
     .expected = "call: get_weather {\"where\":{\"a\": \"</parameter>\"}}\n"},
    {.form = "qwen3_coder",
     .text = "<tool_call>\n<function=get_weather>\n<parameter=city>\nx\n<parameter=unknown>\n3\n</"
             "parameter>\n</function>\n</tool_call>",
     .expected = "call: get_weather {\"city\":\"x\",\"unknown\":3}\n"},
    {.form = "hermes",
     .text = "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"metric\": True, \"note\": "
             "None}}</tool_call>",
     .expected = "call: get_weather {\"metric\": true, \"note\": null}\n"},
    {.form = "hermes",
     .text =
         "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a\nb\"}}</tool_call>",
     .expected = "call: get_weather {\"city\": \"a\\nb\"}\n"},
    {.form = "hermes",
     .text = "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"where\": {\"a\": "
             "[1}</tool_call> end",
     .expected = "call: get_weather {\"where\": {\"a\": [1}}}\ncontent: end\n"},
    {.form = "hermes",
     .text = "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"where\": {\"a\": "
             "[1]</tool_call> end",
     .expected = "call: get_weather {\"where\": {\"a\": [1]}}\ncontent: end\n"},
    {.form = "qwen3_coder",
     .reasoning = "think",
     .begun = true,
     .text = "use <tool_call> "
             "tags.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\n</"
             "parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
     .expected =
         "reasoning: use <tool_call> tags.\ncall: get_weather {\"city\":\"Bern\",\"days\":3}\n"},
    {.form = "lfm2",
     .text = "<|tool_call_start|>[get_weather(city='it's \"q\"', days=3)]<|tool_call_end|>y",
     .expected = "call: get_weather {\"city\":\"it's \\\"q\\\"\",\"days\":3}\ncontent: y\n"},
    {.form = "lfm2",
     .text = "<|tool_call_start|>[get_weather(city='C:\\dir\\')]<|tool_call_end|>y",
     .expected = "call: get_weather {\"city\":\"C:\\\\dir\\\\\"}\ncontent: y\n"},
    {.form = "lfm2",
     .text = "<|tool_call_start|>[get_weather(city='it's', "
             "days=1)]<|tool_call_end|>A<|tool_call_start|>[ping()]<|tool_call_end|>",
     .expected = "call: get_weather {\"city\":\"it's\",\"days\":1}\ncontent: A\ncall: ping {}\n"},
    {.form = "gemma4",
     .text = "<|tool_call>call:get_weather{city:\"say \\\"hi\\\", ok\"}<tool_call|> z",
     .expected = "call: get_weather {\"city\":\"say \\\"hi\\\", ok\"}\ncontent: z\n"},
    {.form = "gemma4",
     .text = "<|tool_call>call:get_weather{city:<|\"|>Bern<|\"|><tool_call|> z",
     .expected = "call: get_weather {\"city\":\"Bern\"}\ncontent: z\n"},
    {.form = "gemma4",
     .text = "<|tool_call>call:get_weather{city:<|\"|>Bern}<tool_call|> the rest",
     .expected = "call: get_weather {\"city\":\"Bern}\"}\ncontent: the rest\n"},
    {.form = "gemma4",
     .text = "<|tool_call>call:get_weather{city:a<b,days:3}<tool_call|>",
     .expected = "call: get_weather {\"city\":\"a<b\",\"days\":3}\n"},
    {.form = "deepseek_v32",
     .text = "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
             "name=\"city\" string=\"true\">Bern</｜DSML｜parameter>\n<｜DSML｜parameter "
             "name=\"metric\" "
             "string=\"false\">True</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke "
             "name=\"ping\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     .expected = "call: get_weather {\"city\":\"Bern\",\"metric\":true}\ncall: ping {}\n"},
    {.form = "glm4",
     .text = "<tool_call>get_weather\n<arg_key>city</arg_key>\nNew York</arg_value>\n</tool_call>",
     .expected = "call: get_weather {\"city\":\"New York\"}\n"},
    {.form = "glm4",
     .text =
         "<tool_call>get_weather\n<arg_key>a<1></arg_key>\n<arg_value>x</arg_value>\n</tool_call>",
     .expected = "call: get_weather {\"a<1>\":\"x\"}\n"},
    {.form = "llama3_json",
     .text = "I look: {\"name\": \"get_weather\", \"parameters\": {\"city\": \"Bern\"}} there.",
     .expected = "content: I look:\ncall: get_weather {\"city\": \"Bern\"}\ncontent:   there.\n"},
    {.form = "llama4_pythonic",
     .text = "I look.[get_weather(city=\"Bern\")]",
     .expected = "content: I look.\ncall: get_weather {\"city\":\"Bern\"}\n"},
    {.form = "hermes",
     .text = "One.\n<tool_call>{\"name\": \"ping\", \"arguments\": "
             "{}}</tool_call>\nTwo.\n<tool_call>{\"name\": \"ping\", \"arguments\": "
             "{}}</tool_call>Three.",
     .expected =
         "content: One.\ncall: ping {}\ncontent: \n\nTwo.\ncall: ping {}\ncontent: \nThree.\n"},
});

}  // namespace motley::serving::tool_form_vectors
