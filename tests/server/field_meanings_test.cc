// What the fields of chats and completions mean, where it takes more than one of them to see it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/json_paths.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string user = R"({"role": "user", "content": "hello"})";

std::string chat(std::string_view more, std::string_view messages = user) {
  return post("/v1/chat/completions",
              cat("{\"messages\": [", messages, "]", more.empty() ? "" : ", ", more, "}"));
}

std::string completion(std::string_view more) {
  return post("/v1/completions", cat("{\"prompt\": \"hello\", ", more, "}"));
}

std::string prompt_of(TestServer& server) {
  return server.text().tokenizer().decode(server.engine().last_request().tokens, false);
}

grammar::Spec grammar_of(TestServer& server, const std::string& request) {
  const Received answer = server.ask(request);
  EXPECT_EQ(answer.status, 200) << answer.body;
  return server.engine().last_request().sampling.grammar.value_or(grammar::Spec{});
}

TEST(StructuredOutputs, MeanWhatGuidedFieldsMean) {
  TestServer server;
  for (const auto& [kind, value] : std::initializer_list<std::pair<std::string, std::string>>{
           {"json", R"({"type": "object"})"},
           {"json", R"("{\"type\": \"object\"}")"},
           {"regex", R"("[a-z]+")"},
           {"grammar", R"("root ::= \"a\"")"},
           {"choice", R"(["yes", "no"])"}}) {
    const std::string outputs = cat(R"("structured_outputs": {")", kind, "\": ", value, "}");
    const grammar::Spec guided =
        grammar_of(server, completion(cat("\"guided_", kind, "\": ", value)));
    EXPECT_FALSE(guided.text.empty());
    EXPECT_EQ(grammar_of(server, completion(outputs)), guided) << kind;
    EXPECT_EQ(grammar_of(server, chat(outputs)), guided) << kind;
  }
  EXPECT_EQ(grammar_of(server, chat(R"("structured_outputs": {"json_object": true})")).kind,
            grammar::Spec::Kind::json_object);
  const grammar::Spec one_line =
      grammar_of(server, chat(R"("response_format": {"type": "json_object"},
                      "structured_outputs": {"disable_any_whitespace": true, "backend": "x"})"));
  EXPECT_FALSE(one_line.any_whitespace);
}

TEST(StructuredOutputs, TakeStructuralTagsInEveryForm) {
  TestServer server;
  const std::string format = R"({"type": "const_string", "value": "a"})";
  const std::string tag = cat(R"({"type":"structural_tag","format":)",
                              json::write(json::parse(format, "format").value()), "}");
  std::string quoted;
  json::append_string(quoted, tag);
  for (const std::string& body :
       {cat(R"("structured_outputs": {"structural_tag": )", tag, "}"),
        cat(R"("structured_outputs": {"structural_tag": )", quoted, "}"),
        cat(R"("response_format": {"type": "structural_tag", "format": )", format, "}")}) {
    const grammar::Spec spec = grammar_of(server, chat(body));
    EXPECT_EQ(spec.kind, grammar::Spec::Kind::structural_tag);
    EXPECT_EQ(spec.text, tag) << body;
  }
  const grammar::Spec first =
      grammar_of(server, chat(R"("response_format": {"type": "structural_tag", "triggers": ["<f"],
                      "structures": [{"begin": "<f>", "schema": {"type": "object"}, "end": "</f>"}]})"));
  EXPECT_EQ(first.text,
            R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<f"],)"
            R"("tags":[{"begin":"<f>","content":{"type":"json_schema","json_schema":)"
            R"({"type":"object"}},"end":"</f>"}]}})");
}

TEST(StructuredOutputs, AreOneOfAllAndRefusedByName) {
  TestServer server;
  for (const auto& [body, param] : std::initializer_list<std::pair<std::string, std::string>>{
           {R"("structured_outputs": {"regex": "a", "json": {}})", "structured_outputs.regex"},
           {R"("structured_outputs": {"regex": "a"}, "guided_json": {})",
            "structured_outputs.regex"},
           {R"("structured_outputs": 3)", "structured_outputs"},
           {R"("structured_outputs": {"json": 3})", "structured_outputs.json"},
           {R"("structured_outputs": {"choice": [3]})", "structured_outputs.choice[0]"},
           {R"("structured_outputs": {"structural_tag": "{"})",
            "structured_outputs.structural_tag"},
           {R"("structured_outputs": {"structural_tag": {}})",
            "structured_outputs.structural_tag.format"},
           {R"("structured_outputs": {"disable_additional_properties": true})",
            "structured_outputs.disable_additional_properties"},
           {R"("response_format": {"type": "structural_tag", "structures": [{}]})",
            "response_format.structures[0]"}}) {
    const Received refused = server.ask(chat(body));
    EXPECT_EQ(refused.status, 400) << body;
    EXPECT_EQ(refused.error("param"), param) << refused.body;
  }
}

TEST(Bans, AreWordsInTokensAsTextsBeginAndBehindABlank) {
  TestServer server;
  server.engine().say("x");
  const auto ids = [&](std::string_view text) {
    return server.text().tokenizer().encode(text, {.add_special_tokens = false}).value();
  };
  EXPECT_EQ(server.ask(chat(R"("bad_words": ["a", " hello"])")).status, 200);
  ASSERT_EQ(ids("a").size(), ids(" a").size());
  ASSERT_EQ(ids("hello").size(), ids(" hello").size());
  EXPECT_THAT(server.engine().last_request().sampling.banned,
              ElementsAre(ids("a"), ids(" a"), ids("hello"), ids(" hello")));
  // What a blank makes longer or shorter is one sequence.
  EXPECT_EQ(server.ask(chat(R"("bad_words": ["\u00e9t\u00e9", "123"])")).status, 200);
  std::vector<std::vector<std::int32_t>> some;
  for (const std::string& word : {std::string("été"), std::string("123")}) {
    some.push_back(ids(word));
    if (ids(cat(" ", word)).size() == ids(word).size()) some.push_back(ids(cat(" ", word)));
  }
  EXPECT_EQ(server.engine().last_request().sampling.banned, some);
  EXPECT_EQ(server.ask(completion(R"("allowed_token_ids": [7, 3, 7])")).status, 200);
  EXPECT_THAT(server.engine().last_request().sampling.allowed_tokens, ElementsAre(3, 7));
  for (const auto& [body, param] : std::initializer_list<std::pair<std::string, std::string>>{
           {R"("bad_words": ["a", " "])", "bad_words[1]"},
           {R"("bad_words": [3])", "bad_words[0]"},
           {R"("allowed_token_ids": [])", "allowed_token_ids"},
           {R"("allowed_token_ids": [-1])", "allowed_token_ids[0]"}}) {
    const Received refused = server.ask(chat(body));
    EXPECT_EQ(refused.status, 400) << body;
    EXPECT_EQ(refused.error("param"), param) << refused.body;
  }
}

TEST(Bans, OfMoreTokensThanARequestMayHaveAreRefused) {
  TestServer server;
  server.engine().say("x");
  const text::Tokenizer& tokenizer = server.text().tokenizer();
  const auto tokens_of = [&](std::string_view word) {
    const text::EncodeOptions plain{.add_special_tokens = false};
    const std::size_t first = tokenizer.encode(word, plain).value().size();
    const std::size_t inside = tokenizer.encode(cat(" ", word), plain).value().size();
    return inside == first ? 2 * first : first;
  };
  // Word by word up to the bound, and one more.
  std::string words;
  for (std::size_t i = 0, tokens = 0;; ++i) {
    std::string word = cat(i);
    while (word.size() < 900) word += cat("~^", word.size(), "x");
    const bool over = (tokens += tokens_of(word)) > 10'000;
    const std::string before = words;
    words += cat(words.empty() ? "" : ", ", "\"", word, "\"");
    if (!over) continue;
    ASSERT_GT(i, 1U);
    ASSERT_LT(i, 999U) << "the number of words is another bound";
    EXPECT_EQ(server.ask(chat(cat("\"bad_words\": [", before, "]"))).status, 200);
    break;
  }
  const Received refused = server.ask(chat(cat("\"bad_words\": [", words, "]")));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error("param"), "bad_words");
  EXPECT_THAT(refused.error("message"), HasSubstr("more than 10000 tokens"));
}

TEST(TruncatedPrompts, KeepTheirEnd) {
  TestServer server;
  server.engine().say("x");
  std::string words = "first";
  for (int i = 0; i < 1500; ++i) words += " and";
  words += " last";
  const std::string content = cat(R"({"role": "user", "content": ")", words, "\"}");
  EXPECT_EQ(server.ask(chat("", content)).error("code"), "context_length_exceeded");
  EXPECT_EQ(server.ask(chat(R"("truncate_prompt_tokens": -1, "max_tokens": 30)", content)).status,
            200);
  EXPECT_EQ(server.engine().last_request().tokens.size(), 970U);
  EXPECT_THAT(prompt_of(server), HasSubstr(" and last<|im_end|>"));
  const Received echoed = server.ask(post(
      "/v1/completions", cat(R"({"prompt": ")", words,
                             R"(", "truncate_prompt_tokens": 2, "echo": true, "max_tokens": 1})")));
  EXPECT_EQ(text_at(echoed.json(), "choices.0.text"), " lastx");
  EXPECT_EQ(server.engine().last_request().tokens.size(), 2U);
  EXPECT_EQ(server.ask(completion(R"("truncate_prompt_tokens": 0)")).error("param"),
            "truncate_prompt_tokens");
}

TEST(TruncatedPrompts, ThatFitAreNotCutForAnAnswerThatCanNotBeSoLong) {
  TestServer server;
  server.engine().say("x");
  ASSERT_EQ(server.ask(chat(R"("max_tokens": 5)")).status, 200);
  const std::string whole = prompt_of(server);
  for (const char* const most : {"1000", "5000"}) {
    ASSERT_EQ(server.ask(chat(cat(R"("truncate_prompt_tokens": -1, "max_tokens": )", most))).status,
              200);
    EXPECT_EQ(prompt_of(server), whole) << most;
  }
}

TEST(AnswersOfNoTokens, HaveTheirLengthAsReason) {
  TestServer server;
  server.engine().say("x");
  const Received said = server.ask(chat(R"("max_tokens": 0)"));
  ASSERT_EQ(said.status, 200) << said.body;
  EXPECT_EQ(text_at(said.json(), "choices.0.message.content"), "");
  EXPECT_EQ(text_at(said.json(), "choices.0.finish_reason"), "length");
  EXPECT_EQ(server.ask(completion(R"("max_tokens": 0)")).status, 200);
}

TEST(Streams, SayTheirUsageInEveryEventWhereThatIsAsked) {
  TestServer server;
  server.engine().say("one two three");
  for (const bool chats : {true, false}) {
    const std::string options =
        R"("stream": true, "max_tokens": 9,
           "stream_options": {"include_usage": true, "continuous_usage_stats": true})";
    const Received reply = server.ask(chats ? chat(options) : completion(options));
    const auto prompt = std::to_string(server.engine().last_request().tokens.size());
    std::int64_t last = -1;
    ASSERT_GT(reply.events().size(), 3U);
    for (const json::Value& event : reply.events()) {
      EXPECT_EQ(text_at(event, "usage.prompt_tokens"), prompt);
      const std::int64_t count = *at(event, "usage.completion_tokens").if_integer();
      EXPECT_GE(count, last);
      last = count;
    }
    const auto said =
        server.text().tokenizer().encode("one two three", {.add_special_tokens = false}).value();
    EXPECT_EQ(last, static_cast<std::int64_t>(said.size()));
    EXPECT_EQ(text_at(reply.events()[chats ? 1 : 0], "usage.completion_tokens"), "1");
  }
  const Received whole = server.ask(chat(R"("stream_options": {"include_usage": true})"));
  EXPECT_EQ(whole.status, 200);
  EXPECT_EQ(whole.headers.at("x-motley-ignored"), "stream_options");
  const Received neutral = server.ask(chat(R"("stream_options": {"include_usage": false})"));
  EXPECT_FALSE(neutral.headers.contains("x-motley-ignored"));
}

TEST(OpenMessages, GoOnBehindTheirText) {
  TestServer server;
  server.engine().say(" world. <think>");
  const auto open = [&](std::string_view content, std::string_view more = {}) {
    return server.ask(chat(cat(R"("continue_final_message": true)", more),
                           cat(user, R"(, {"role": "assistant", "content": )", content, "}")));
  };
  const std::string before = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n";
  Received reply = open(R"("Hello, ")");
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(prompt_of(server), before + "Hello, ");
  EXPECT_EQ(text_at(reply.json(), "choices.0.message.content"), " world. <think>");
  EXPECT_EQ(open(R"([{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}])",
                 R"(, "add_generation_prompt": false)")
                .status,
            200);
  EXPECT_EQ(prompt_of(server), before + "Hello");
  EXPECT_EQ(open(R"("")").status, 200);
  EXPECT_EQ(prompt_of(server), before);

  // The template's own text for the same conversation, up to there.
  server.engine().say(" so on\n</think>\n\nanswer");
  reply = open(R"("<think>\nand")");
  EXPECT_EQ(text_at(reply.json(), "choices.0.message.reasoning_content"), " so on");
  EXPECT_EQ(text_at(reply.json(), "choices.0.message.content"), "answer");
  reply = open(R"("<think>\nand\n</think>\n\nnow")");
  EXPECT_EQ(text_at(reply.json(), "choices.0.message.content"), " so on\n</think>\n\nanswer");
  // A grammar's text is content.
  EXPECT_EQ(open(R"("<think>\nand")", R"(, "guided_regex": "a")").status, 200);
  EXPECT_EQ(prompt_of(server), before + "<think>\nand\n</think>\n\n");
}

TEST(OpenMessages, OfPartsGoOnBehindAllOfThem) {
  TestServer server;
  server.engine().say("x");
  const std::string parts = cat(user, R"(, {"role": "assistant", "content": [
      {"type": "text", "text": "Well, "}, {"type": "refusal", "refusal": "no"}]})");
  const Received answer =
      server.ask(chat(R"("continue_final_message": true, "echo": true)", parts));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(prompt_of(server).ends_with("Well, no")) << prompt_of(server);
  EXPECT_EQ(text_at(answer.json(), "choices.0.message.content"), "Well, nox");
}

TEST(OpenMessages, AreRefusedWhereTheyCanNotGoOn) {
  TestServer server({.request_templates = true});
  server.engine().say("x");
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f"}}])";
  for (const std::string& more :
       {std::string(R"("add_generation_prompt": true)"),
        cat(tools, R"(, "tool_choice": "required")"),
        std::string(R"("chat_template": "{{ messages[0].content | upper }}")"),
        std::string(R"("chat_template": "{{ messages[0].content | replace('hello', 'bye') }}")")}) {
    const Received refused = server.ask(chat(cat(R"("continue_final_message": true, )", more)));
    EXPECT_EQ(refused.status, 400) << more;
    EXPECT_EQ(refused.error("param"), "continue_final_message") << refused.body;
  }
  // One that takes blanks from the ends of messages takes them from this one too.
  EXPECT_EQ(server
                .ask(chat(R"("continue_final_message": true,
                             "chat_template": "<{{ messages[0].content | trim }}>")",
                          R"({"role": "user", "content": " hello  "})"))
                .status,
            200);
  EXPECT_EQ(prompt_of(server), "<hello");
}

TEST(RequestTemplates, AreTakenOnlyWhereTheServerSaysSo) {
  TestServer closed;
  const std::string own = R"("chat_template": "{{ bos_token }}[{{ messages[0].content }}]")";
  const Received refused = closed.ask(chat(own));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error("param"), "chat_template");
  EXPECT_THAT(refused.error("message"), HasSubstr("--allow-request-templates"));

  TestServer open({.request_templates = true});
  open.engine().say("<think>why</think>x");
  const Received taken = open.ask(chat(own));
  ASSERT_EQ(taken.status, 200) << taken.body;
  EXPECT_EQ(prompt_of(open), "[hello]");
  EXPECT_EQ(text_at(taken.json(), "choices.0.message.content"), "<think>why</think>x")
      << "it writes no reasoning";
  for (const std::string_view bad : {R"("{% if %}")", R"("{{ nothing.at.all() }}")",
                                     R"("{% for i in range(100000000) %}{% endfor %}")"}) {
    const Received broken = open.ask(chat(cat("\"chat_template\": ", bad)));
    EXPECT_EQ(broken.status, 400) << bad << broken.body;
    EXPECT_THAT(broken.error("param"), testing::AnyOf("chat_template", "messages")) << broken.body;
  }
}

constexpr std::string_view functions =
    R"("functions": [{"name": "look", "parameters": {"type": "object"}}, {"name": "go"}])";

TEST(OldFunctions, AreAnsweredInTheirForm) {
  TestServer server;
  server.engine().say("<tool_call>\n{\"name\": \"look\", \"arguments\": {\"a\": 1}}\n</tool_call>");
  const json::Value body = server.ask(chat(functions)).json();
  EXPECT_EQ(text_at(body, "choices.0.finish_reason"), "function_call");
  EXPECT_EQ(text_at(body, "choices.0.message.content"), "null");
  EXPECT_EQ(text_at(body, "choices.0.message.function_call"),
            R"({"name":"look","arguments":"{\"a\": 1}"})");
  EXPECT_EQ(text_at(body, "choices.0.message.tool_calls"), "(absent)");
  std::string name;
  std::string arguments;
  for (const json::Value& event :
       server.ask(chat(cat(functions, R"(, "stream": true)"))).events()) {
    EXPECT_EQ(text_at(event, "choices.0.delta.tool_calls"), "(absent)");
    const json::Value& call = at(event, "choices.0.delta.function_call");
    if (call.if_object() == nullptr) continue;
    if (call.if_object()->contains("name")) name += text_at(call, "name");
    arguments += text_at(call, "arguments");
  }
  EXPECT_EQ(name, "look");
  EXPECT_EQ(arguments, R"({"a": 1})");
  for (const auto& [more, param] : std::initializer_list<std::pair<std::string, std::string>>{
           {R"("functions": [{}])", "functions[0].name"},
           {R"("functions": 3)", "functions"},
           {cat(functions, R"(, "function_call": {"name": "no"})"), "function_call.name"},
           {cat(functions, R"(, "function_call": "some")"), "function_call"},
           {cat(functions, R"(, "tools": [])"), "functions"}}) {
    const Received refused = server.ask(chat(more));
    EXPECT_EQ(refused.status, 400) << more;
    EXPECT_EQ(refused.error("param"), param) << refused.body;
  }
}

TEST(OldFunctions, InMessagesAreCallsForTheTemplate) {
  TestServer server;
  server.engine().say("x");
  const std::string old = R"(, {"role": "assistant", "content": null,
      "function_call": {"name": "look", "arguments": "{\"a\": 1}"}},
      {"role": "function", "name": "look", "content": "seen"})";
  const std::string now =
      R"(, {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1",
      "type": "function", "function": {"name": "look", "arguments": "{\"a\": 1}"}}]},
      {"role": "tool", "tool_call_id": "call_1", "name": "look", "content": "seen"})";
  EXPECT_EQ(server.ask(chat("", user + old)).status, 200);
  const std::string prompt = prompt_of(server);
  EXPECT_THAT(prompt, HasSubstr("<tool_call>"));
  EXPECT_EQ(server.ask(chat("", user + now)).status, 200);
  EXPECT_EQ(prompt_of(server), prompt);
}

TEST(AllowedTools, AreAllThatTheModelSees) {
  TestServer server;
  server.engine().say("x");
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "look"}},
                                         {"type": "function", "function": {"name": "go"}}])";
  const auto choose = [&](std::string_view choice) {
    return server.ask(chat(cat(tools, R"(, "tool_choice": )", choice)));
  };
  EXPECT_EQ(choose(R"({"type": "allowed_tools", "allowed_tools": {"mode": "auto",
      "tools": [{"type": "function", "function": {"name": "go"}}]}})")
                .status,
            200);
  EXPECT_THAT(prompt_of(server), HasSubstr("\"go\""));
  EXPECT_THAT(prompt_of(server), Not(HasSubstr("\"look\"")));
  EXPECT_FALSE(server.engine().last_request().sampling.grammar);
  EXPECT_EQ(choose(R"({"type": "allowed_tools", "mode": "required",
      "tools": [{"type": "function", "name": "go"}]})")
                .status,
            200);
  EXPECT_THAT(server.engine().last_request().sampling.grammar->text, Not(HasSubstr("look")));
  EXPECT_EQ(choose(R"({"type": "allowed_tools", "allowed_tools": {"mode": "auto",
      "tools": [{"function": {"name": "fly"}}]}})")
                .error("param"),
            "tool_choice.allowed_tools.tools[0]");
  EXPECT_EQ(
      choose(R"({"type": "allowed_tools", "allowed_tools": {"mode": "most"}})").error("param"),
      "tool_choice.allowed_tools.mode");
}

TEST(Refusals, OfAssistantsAreTheirText) {
  TestServer server;
  server.engine().say("x");
  const std::string parts = R"("content": [{"type": "refusal", "refusal": "I would rather not"}]})";
  EXPECT_EQ(
      server.ask(chat("", cat(user, R"(, {"role": "assistant", )", parts, ", ", user))).status,
      200);
  EXPECT_THAT(prompt_of(server), HasSubstr("assistant\nI would rather not<|im_end|>"));
  EXPECT_EQ(server.ask(chat("", cat(R"({"role": "user", )", parts))).error("param"),
            "messages[0].content");
}

TEST(Reasoning, IsLeftOutOfAnswersThatDoNotWantIt) {
  TestServer server;
  server.engine().say("<think>\nwhy\n</think>\n\nso");
  const json::Value body = server.ask(chat(R"("include_reasoning": false)")).json();
  EXPECT_EQ(text_at(body, "choices.0.message.reasoning_content"), "(absent)");
  EXPECT_EQ(text_at(body, "choices.0.message.content"), "so");
  const Received stream = server.ask(chat(R"("include_reasoning": false, "stream": true)"));
  EXPECT_THAT(stream.body, Not(HasSubstr("reasoning_content")));
}

}  // namespace
}  // namespace motley::server
