#include "cli/options/foreign/foreign_options.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "cli/command.h"
#include "cli/run_motley.h"
#include "serving/forms/chat_format.h"

namespace motley::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

Result<Arguments> serve(const std::vector<std::string>& words) {
  return Arguments::parse(serve_command().spec, words);
}

std::string refusal(const std::vector<std::string>& words) {
  const auto parsed = serve(words);
  return parsed.ok() ? "taken" : parsed.error().message();
}

std::vector<std::string> ignored(const Arguments& arguments) {
  std::vector<std::string> names;
  for (const IgnoredOption& each : arguments.ignored()) names.push_back(each.written);
  return names;
}

std::vector<std::string> values(const Arguments& arguments, std::string_view option) {
  const auto given = arguments.values(option);
  return {given.begin(), given.end()};
}

bool serve_has(std::string_view option) {
  const Command command = serve_command();
  const auto is_it = [&](const OptionSpec& each) { return each.name == option; };
  return std::ranges::any_of(command.spec.options, is_it);
}

// The table.

TEST(ForeignTable, NamesAreUniqueAndNoneIsOurs) {
  std::set<std::string_view> names;
  for (const ForeignOption& option : foreign_options()) {
    EXPECT_THAT(std::string(option.name), StartsWith("--"));
    EXPECT_FALSE(serve_has(option.name)) << option.name;
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    if (option.short_name.empty()) continue;
    EXPECT_TRUE(names.insert(option.short_name).second) << option.short_name;
  }
}

TEST(ForeignTable, IsMappedOntoOptionsThatServeHas) {
  for (const ForeignOption& option : foreign_options()) {
    EXPECT_FALSE(option.here.empty()) << option.name;
    const bool has_option = option.use == ForeignUse::mapped && option.here != model_itself;
    EXPECT_TRUE(!has_option || serve_has(option.here)) << option.name;
    bool refuses_some = option.use == ForeignUse::refused;
    for (const ForeignValue& value : option.values) {
      refuses_some = refuses_some || value.use == ForeignUse::refused;
      if (value.use != ForeignUse::mapped) continue;
      EXPECT_TRUE(serve_has(value.here.substr(0, value.here.find(' '))))
          << option.name << " " << value.value;
    }
    EXPECT_EQ(option.fix.empty(), !refuses_some) << option.name;
  }
}

TEST(ForeignTable, ParsersAreMappedOntoFormsThatThereAre) {
  for (const ForeignOption& option : foreign_options()) {
    for (const ForeignValue& value : option.values) {
      serving::FormNames names;
      const std::string form(value.here.substr(value.here.find(' ') + 1));
      if (value.here.starts_with("--tool-form ")) names.calls = form;
      if (value.here.starts_with("--reasoning-form ")) names.reasoning = form;
      EXPECT_TRUE(names.check().ok()) << option.name << " " << value.value;
    }
  }
}

// The guide's table.

std::string code(std::string_view text) { return cat("`", text, "`"); }

std::string in_words(ForeignUse use, std::string_view here) {
  if (use == ForeignUse::mapped) return here == model_itself ? "MODEL" : code(here);
  return cat(use == ForeignUse::ignored ? "no effect: " : "refused: ", here);
}

bool say_the_same(const ForeignValue& one, const ForeignValue& other) {
  return one.use == other.use && one.here == other.here;
}

std::string cell_of(const ForeignOption& option) {
  std::string cell = in_words(option.use, option.here);
  const bool first_refused = option.use == ForeignUse::refused;
  if (first_refused) cell += cat("; ", option.fix);
  for (std::size_t i = 0; i < option.values.size(); ++i) {
    const ForeignValue& value = option.values[i];
    // A switch that is given.
    if (value.value == "true") return in_words(value.use, value.here);
    const bool follows = i > 0 && say_the_same(option.values[i - 1], value);
    const bool ends = i + 1 == option.values.size() || !say_the_same(value, option.values[i + 1]);
    cell += cat(follows ? ", " : ". ", code(value.value));
    if (ends) cell += cat(": ", in_words(value.use, value.here));
  }
  return first_refused || option.fix.empty() ? cell : cat(cell, "; ", option.fix);
}

std::string names_of(const ForeignOption& option) {
  return option.short_name.empty() ? code(option.name)
                                   : cat(code(option.name), " ", code(option.short_name));
}

std::string table_of_options() {
  std::string table = "| vLLM | motley |\n|---|---|\n";
  const auto options = foreign_options();
  for (std::size_t i = 0; i < options.size();) {
    const std::string cell = cell_of(options[i]);
    std::string names = names_of(options[i]);
    for (++i; i < options.size() && cell_of(options[i]) == cell; ++i)
      names += cat(", ", names_of(options[i]));
    table += cat("| ", names, " | ", cell, " |\n");
  }
  return table;
}

TEST(ForeignTable, TheGuideShowsIt) {
  std::ifstream file(MOTLEY_VLLM_GUIDE);
  std::stringstream page;
  page << file.rdbuf();
  const std::string table = table_of_options();
  EXPECT_NE(page.str().find(table), std::string::npos)
      << MOTLEY_VLLM_GUIDE << " needs this table:\n"
      << table;
}

// What becomes of options.

TEST(ForeignOptions, AreMappedWithTheirValues) {
  const auto parsed = serve({"m", "-tp", "2", "--data_parallel_size=3", "--enable-expert-parallel",
                             "--kv-cache-dtype", "fp8_e4m3", "--dtype", "float32",
                             "--allowed-origins", R"(["http://a", "http://b"])"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(*parsed->value("--tp"), "2");
  EXPECT_EQ(*parsed->value("--dp"), "3");
  EXPECT_EQ(*parsed->value("--ep"), "tp");
  EXPECT_EQ(*parsed->value("--kv-dtype"), "fp8");
  EXPECT_EQ(*parsed->value("--compute"), "f32");
  EXPECT_THAT(values(*parsed, "--cors-origin"), ElementsAre("http://a", "http://b"));
  EXPECT_THAT(ignored(*parsed), IsEmpty());
}

TEST(ForeignOptions, TakeAsManyWordsAsVllmGivesThem) {
  const auto parsed =
      serve({"--disable-log-stats", "m", "--served-model-name", "a", "b", "--hf-token", "--port",
             "1", "--lora-modules", "x=1", "y=2", "--lora-modules=z=3", "--cuda-graph-sizes", "1",
             "2", "--no-enable-lora", "--enable-chunked-prefill", "False"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(parsed->positional(0), "m");
  EXPECT_EQ(*parsed->value("--port"), "1");
  EXPECT_THAT(values(*parsed, "--name"), ElementsAre("a", "b"));
  EXPECT_THAT(values(*parsed, "--lora-modules"), ElementsAre("x=1", "y=2", "z=3"));
  EXPECT_THAT(ignored(*parsed),
              ElementsAre("--disable-log-stats", "--hf-token", "--cuda-graph-sizes",
                          "--no-enable-lora", "--enable-chunked-prefill"));
  // A word that is no module ends their list.
  EXPECT_EQ(serve({"--lora-modules", "x=1", "m"})->positional(0), "m");
}

TEST(ForeignOptions, TheModelIsAWordOrAnOption) {
  EXPECT_EQ(serve({"--model", "m", "--enforce-eager"})->positional(0), "m");
  EXPECT_TRUE(serve({"--model=m", "--enforce-eager"})->has("--no-graphs"));
  EXPECT_FALSE(serve({"--model=m", "--no-enforce-eager"})->has("--no-graphs"));
  EXPECT_THAT(refusal({"--model", "m", "n"}), HasSubstr("one argument too many, 'n'"));
  EXPECT_EQ(refusal({"--served-model-name", "a", "m"}),
            "no MODEL (motley serve): write it before --served-model-name, which takes all words");
}

TEST(ForeignOptions, WhatIsSoAnywayIsTaken) {
  const auto parsed =
      serve({"models/m", "--tokenizer", "models/m/", "--pipeline-parallel-size", "1",
             "--load-format", "safetensors", "--tool-call-parser", "mistral", "--hf-overrides",
             "{}", "--generation-config", "auto", "--task=generate", "--no-enable-prompt-adapter"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_FALSE(parsed->has("--tool-form"));
  EXPECT_EQ(ignored(*parsed).size(), 8U);
  EXPECT_EQ(*serve({"m", "--tool-call-parser", "glm45"})->value("--tool-form"), "glm4");
}

TEST(ForeignOptions, WhatWouldChangeAnswersIsRefusedInOneLine) {
  EXPECT_EQ(refusal({"m", "--dtype", "half"}),
            "--dtype half asks for float16, which motley does not compute in (motley serve): use "
            "bfloat16, or float32, which is exact");
  EXPECT_EQ(refusal({"m", "--api-key", "secret"}),
            "--api-key shows the key to other users of the machine (motley serve): give "
            "--api-key-file F");
  EXPECT_EQ(refusal({"m", "-pp", "2"}),
            "-pp 2 shares layers out, and motley does not (motley serve): give the GPUs to --tp");
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--no-enable-prefix-caching"},
                                             {"--tokenizer", "other"},
                                             {"--quantization", "fp8"},
                                             {"--load-format", "dummy"},
                                             {"--hf-overrides.rope_theta", "1"},
                                             {"--ssl-keyfile", "k"},
                                             {"--generation-config", "vllm"}}) {
    std::vector<std::string> line = {"m"};
    line.insert(line.end(), words.begin(), words.end());
    const Outcome outcome = motley([&] {
      std::vector<std::string> call = {"serve"};
      call.insert(call.end(), line.begin(), line.end());
      return call;
    }());
    EXPECT_EQ(outcome.status, 2) << words.front();
    EXPECT_THAT(outcome.errors,
                AllOf(StartsWith(cat("motley: ", words.front())), HasSubstr("(motley serve): ")));
  }
}

TEST(ForeignOptions, GivenTwiceIsNamed) {
  EXPECT_EQ(refusal({"m", "--tp", "2", "--tensor-parallel-size", "2"}),
            "--tp is given twice, also as --tensor-parallel-size (motley serve): keep one of them");
  EXPECT_THAT(refusal({"m", "--max-num-seqs"}), HasSubstr("--max-num-seqs needs a value"));
  EXPECT_THAT(refusal({"m", "--enable-lora=2"}), HasSubstr("--enable-lora takes no value"));
  EXPECT_THAT(refusal({"m", "--max-num-seq", "3"}), HasSubstr("unknown option '--max-num-seq'"));
}

TEST(ForeignOptions, OtherCommandsTakeThoseThatAreTheirs) {
  const std::vector<std::string> words = {"m", "-tp", "2", "--lora-modules", "a=b"};
  EXPECT_EQ(*Arguments::parse(chat_command().spec, words)->value("--tp"), "2");
  EXPECT_THAT(motley({"chat", "m", "--enable-lora"}).errors,
              HasSubstr("unknown option '--enable-lora' (motley chat): vLLM's --enable-lora has no "
                        "effect here: adapters need no switch"));
  EXPECT_THAT(motley({"chat", "m", "--shutdown-timeout", "1"}).errors,
              HasSubstr("vLLM's --shutdown-timeout is --drain-timeout here"));
  EXPECT_THAT(motley({"inspect", "m", "-tp", "2"}).errors,
              HasSubstr("vLLM's --tensor-parallel-size is --tp here"));
}

}  // namespace
}  // namespace motley::cli
