// The guide's table of fields, row by row: what is built changes something, what is refused says
// its name, what is ignored changes nothing, and null asks for nothing anywhere.

#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using Body = std::map<std::string, std::string>;  // values as JSON

const std::string tools =
    R"([{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}])";
const std::string functions = R"([{"name": "look", "parameters": {"type": "object"}}])";
const std::string open_messages =
    R"([{"role": "user", "content": "how"}, {"role": "assistant", "content": "So "}])";
const std::string open_template =
    R"("{{ documents }}{{ odd }}{{ reasoning_effort }}{{ messages[0].content }}")";

enum class Protocol : std::uint8_t { chats, completions };

struct Field {
  std::string value;                            // that asks for something
  Body beside = {};                             // what it needs
  std::string neutral = {};                     // beside null
  std::string of_completions = {};              // where the value is another one there
  std::optional<Body> beside_completions = {};  // where they need something else

  const Body& beside_in(Protocol route) const {
    return route == Protocol::completions && beside_completions ? *beside_completions : beside;
  }
};

using Fields = std::map<std::string, Field>;

Fields fields_of_sampling() {
  return {
      {"model", {R"("base:nobody")"}},
      {"adapters", {R"([{"name": "nobody"}])"}},
      {"messages", {R"([{"role": "user", "content": "other"}])"}},
      {"prompt", {R"("other")"}},
      {"max_tokens", {"3"}},
      {"max_completion_tokens", {"3"}},
      {"min_tokens", {"2"}},
      {"ignore_eos", {"true", {}, "false"}},
      {"n", {"2", {}, "1"}},
      {"stop", {R"(["well"])", {}, "[]"}},
      {"stop_token_ids", {"[7]", {}, "[]"}},
      {"include_stop_str_in_output", {"true", {{"stop", R"("well")"}}, "false"}},
      {"temperature", {"3.5", {}, "1"}},
      {"top_p", {"0.5", {}, "1"}},
      {"top_k", {"4", {}, "0"}},
      {"min_p", {"0.5", {}, "0"}},
      {"seed", {"5"}},
      {"presence_penalty", {"1", {}, "0"}},
      {"frequency_penalty", {"1", {}, "0"}},
      {"repetition_penalty", {"2", {}, "1"}},
      {"logit_bias", {R"({"5": 1000})", {}, "{}"}},
      {"allowed_token_ids", {"[9, 5, 9]"}},
      {"bad_words", {R"(["well", "a few words"])", {}, "[]"}},
  };
}

Fields other_fields() {
  return {
      {"response_format", {R"({"type": "json_object"})", {}, R"({"type": "text"})"}},
      {"structured_outputs", {R"({"regex": "a+"})", {}, "{}"}},
      {"guided_json", {R"({"type": "object"})"}},
      {"guided_regex", {R"("a+")"}},
      {"guided_grammar", {R"("root ::= \"a\"")"}},
      {"guided_choice", {R"(["a", "b"])", {}, "[]"}},
      {"logprobs", {"true", {}, {}, "2"}},
      {"top_logprobs", {"2", {{"logprobs", "true"}}, "0"}},
      {"logprob_token_ids", {"[7]", {{"logprobs", "true"}}, "[]", {}, Body{{"logprobs", "1"}}}},
      {"echo",
       {"true",
        {{"messages", open_messages}, {"continue_final_message", "true"}},
        "false",
        {},
        Body{}}},
      {"return_token_ids", {"true", {}, "false"}},
      {"prompt_logprobs", {"1"}},
      {"prompt_logprob_start", {"-1", {{"prompt_logprobs", "0"}}, "0"}},
      {"prompt_logprob_token_ids",
       {"[[7]]", {{"prompt_logprobs", "0"}, {"prompt_logprob_start", "-1"}}}},
      {"return_routed_experts", {"false", {}, "true"}},
      {"routed_experts_prompt_start", {"1", {}, "0"}},
      {"return_tokens_as_token_ids",
       {"true", {{"logprobs", "true"}}, "false", {}, Body{{"logprobs", "1"}}}},
      {"skip_special_tokens", {"false", {}, "true"}},
      {"stream", {"true", {}, "false"}},
      {"stream_options",
       {R"({"include_usage": true})", {{"stream", "true"}}, R"({"include_usage": false})"}},
      {"truncate_prompt_tokens", {"2", {}, "-1"}},
      {"add_special_tokens", {"true", {}, "false", "false"}},
      {"priority", {"3", {}, "0"}},
      {"request_id", {R"("mine")"}},
      {"cache_salt", {R"("mine")", {}, R"("")"}},
      {"documents", {R"([{"text": "paper"}])", {{"chat_template", open_template}}}},
      {"chat_template_kwargs", {R"({"odd": 3})", {{"chat_template", open_template}}, "{}"}},
      {"reasoning_effort", {R"("low")", {{"chat_template", open_template}}}},
      {"add_generation_prompt", {"false", {}, "true"}},
      {"continue_final_message", {"true", {}, "false"}},
      {"chat_template", {R"("{{ messages[0].content }}")"}},
      {"include_reasoning", {"false", {}, "true"}},
      {"tools", {tools, {}, "[]"}},
      {"tool_choice", {R"("none")", {{"tools", tools}}, R"("auto")"}},
      {"parallel_tool_calls", {"false", {{"tools", tools}}, "true"}},
      {"functions", {functions, {}, "[]"}},
      {"function_call", {R"("none")", {{"functions", functions}}, R"("auto")"}},
      {"user", {R"("me")"}},
      {"metadata", {R"({"a": "b"})"}},
      {"store", {"true"}},
      {"service_tier", {R"("flex")"}},
      {"safety_identifier", {R"("me")"}},
      {"prompt_cache_key", {R"("key")"}},
      {"prompt_cache_retention", {R"("24h")"}},
      {"verbosity", {R"("low")"}},
      {"prediction", {R"({"type": "content", "content": "x"})"}},
      {"guided_decoding_backend", {R"("outlines")"}},
      {"use_beam_search", {"true", {}, "false"}},
      {"length_penalty", {"1.5", {}, "1.0"}},
      {"early_stopping", {"true", {}, "false"}},
      {"best_of", {"2", {}, "1"}},
      {"audio", {R"({"voice": "alloy"})"}},
      {"modalities", {R"(["text", "audio"])", {}, R"(["text"])"}},
      {"web_search_options", {"{}"}},
      {"logits_processors", {R"(["p"])", {}, "[]"}},
      {"mm_processor_kwargs", {R"({"a": 1})", {}, "{}"}},
      {"media_io_kwargs", {R"({"a": 1})", {}, "{}"}},
      {"prompt_embeds", {R"("AAAA")"}},
      {"guided_whitespace_pattern", {R"(" *")"}},
      {"suffix", {R"("end")", {}, R"("")"}},
  };
}

const Fields& fields() {
  static const Fields all = [] {
    Fields both = fields_of_sampling();
    both.merge(other_fields());
    return both;
  }();
  return all;
}

struct Row {
  std::string field;
  std::map<Protocol, std::string> what;  // "built", "ignored", "refused" or "-"
};

std::vector<Row> guide() {
  std::ifstream file(MOTLEY_HTTP_GUIDE);
  std::vector<Row> rows;
  const std::regex line_of_table(
      R"(\| (`[^|]*`) \| (built|ignored|refused|-) \| (built|ignored|refused|-) \|.*)");
  const std::regex name("`([a-z_]+)`");
  for (std::string line; std::getline(file, line);) {
    std::smatch cells;
    if (!std::regex_match(line, cells, line_of_table)) continue;
    const std::string names = cells[1];
    for (std::sregex_iterator each(names.begin(), names.end(), name), end; each != end; ++each)
      rows.push_back(
          {(*each)[1], {{Protocol::chats, cells[2]}, {Protocol::completions, cells[3]}}});
  }
  return rows;
}

std::string text_of(const engine::Request& request) {
  const engine::SamplingParams& params = request.sampling;
  std::ostringstream text;
  const auto ids = [&](const std::vector<std::int32_t>& list) {
    for (const std::int32_t id : list) text << id << ',';
    text << ';';
  };
  ids(request.tokens);
  ids(request.stop_ids);
  ids(params.allowed_tokens);
  for (const auto& banned : params.banned) ids(banned);
  for (const auto& bias : params.logit_bias) text << bias.token << ':' << bias.bias << ',';
  text << params.temperature << ' ' << params.top_k << ' ' << params.top_p << ' ' << params.min_p
       << ' ' << params.repetition_penalty << ' ' << params.frequency_penalty << ' '
       << params.presence_penalty << ' ' << params.seed.value_or(0) << ' ' << params.logprobs << ' '
       << params.top_logprobs << ' ' << params.min_tokens << ' ' << params.ignore_eos << ' '
       << request.max_tokens << ' ' << request.choices << ' ' << request.priority << ' '
       << request.cache_salt;
  if (params.grammar) text << static_cast<int>(params.grammar->kind) << params.grammar->text;
  return text.str();
}

class FieldsOfTheGuide : public testing::Test {
 protected:
  FieldsOfTheGuide() {
    server_.engine().say(
        "<think>\nwhy\n</think>\n\nwell<|begin_of_text|>\n<tool_call>\n{\"name\": \"look\", "
        "\"arguments\": {}}\n"
        "</tool_call>\n<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>");
  }

  Received ask(Protocol route, const Body& body) const {
    Body all = route == Protocol::chats
                   ? Body{{"messages", R"([{"role": "user", "content": "how do you do"}])"}}
                   : Body{{"prompt", R"("how do you do")"}, {"max_tokens", "90"}};
    for (const auto& [key, value] : body) all.insert_or_assign(key, value);
    std::string text = "{";
    for (const auto& [key, value] : all)
      text += cat(text.size() > 1 ? ", " : "", "\"", key, "\": ", value);
    return server_.ask(
        post(route == Protocol::chats ? "/v1/chat/completions" : "/v1/completions", text + "}"));
  }

  // All that can be seen of a request and its answer.
  std::string seen(Protocol route, const Body& body) {
    const Received answer = ask(route, body);
    static const std::regex ours(R"((cmpl-|call_)[0-9a-f]{24,32}|"created":\d+)");
    std::string text = cat(answer.status, " ", std::regex_replace(answer.body, ours, "_"));
    const auto ignored = answer.headers.find("x-motley-ignored");
    if (ignored != answer.headers.end()) text += ignored->second;
    if (answer.status == 200) text += text_of(server_.engine().last_request());
    return text;
  }

  TestServer server_{
      {.tokenizer = llama_tokenizer(), .request_templates = true, .routed_experts = true}};
};

TEST_F(FieldsOfTheGuide, AreThoseOfThisTest) {
  std::set<std::string> listed;
  for (const Row& row : guide()) EXPECT_TRUE(listed.insert(row.field).second) << row.field;
  std::set<std::string> tested;
  for (const auto& [name, field] : fields()) tested.insert(name);
  EXPECT_EQ(listed, tested);
}

TEST_F(FieldsOfTheGuide, DoWhatItSays) {
  for (const Row& row : guide()) {
    for (const auto& [route, what] : row.what) {
      const Field& field = fields().at(row.field);
      const bool other = route == Protocol::completions && !field.of_completions.empty();
      const std::string shown =
          cat(row.field, route == Protocol::chats ? " of chats" : " of completions");
      const Body beside = what == "-" ? Body() : field.beside_in(route);
      Body body = beside;
      body[row.field] = other ? field.of_completions : field.value;
      const Received answer = ask(route, body);
      const auto header = answer.headers.find("x-motley-ignored");
      const std::string ignored = header == answer.headers.end() ? "" : header->second;
      EXPECT_EQ(ignored, what == "-" ? row.field : "") << shown << "\n" << answer.body;
      if (what == "built") {
        EXPECT_NE(seen(route, body), seen(route, beside)) << shown;
        const bool names_no_model = row.field == "model" || row.field == "adapters";
        EXPECT_EQ(answer.status, names_no_model ? 404 : 200) << shown << "\n" << answer.body;
      } else if (what == "refused") {
        EXPECT_EQ(answer.status, 400) << shown;
        EXPECT_EQ(answer.error("param"), row.field) << answer.body;
      } else {
        EXPECT_EQ(answer.status, 200) << shown << "\n" << answer.body;
        if (what == "ignored") {
          EXPECT_EQ(seen(route, body), seen(route, beside)) << shown;
        }
      }
    }
  }
}

TEST_F(FieldsOfTheGuide, AskForNothingWhereTheyAreNullOrNeutral) {
  for (const Row& row : guide()) {
    for (const auto& [route, what] : row.what) {
      const Field& field = fields().at(row.field);
      if (what == "-" || row.field == "messages" || row.field == "prompt") continue;
      const std::string plain = seen(route, field.beside_in(route));
      const bool other = route == Protocol::completions && !field.of_completions.empty();
      for (const std::string& value : {std::string("null"), field.neutral}) {
        if (value.empty() || (other && value != "null")) continue;
        Body body = field.beside_in(route);
        body[row.field] = value;
        if (row.field == "max_tokens" && route == Protocol::completions) continue;
        EXPECT_EQ(seen(route, body), plain) << row.field << " " << value;
      }
    }
  }
}

}  // namespace
}  // namespace motley::server
