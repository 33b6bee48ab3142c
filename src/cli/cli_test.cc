#include "cli/cli.h"

#include <new>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "cli/command.h"
#include "cli/options/settings/compute_settings.h"
#include "cli/run_motley.h"

namespace motley::cli {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

TEST(Cli, HelpNamesEveryCommand) {
  const Outcome outcome = motley({"--help"});
  EXPECT_EQ(outcome.status, 0);
  for (const char* command :
       {"inspect", "serve", "chat", "ask", "score", "bench", "tokenize", "quantize"})
    EXPECT_THAT(outcome.output, HasSubstr(command));
  EXPECT_EQ(outcome.errors, "");
}

TEST(Cli, PrintsItsVersion) {
  EXPECT_THAT(motley({"--version"}).output, testing::MatchesRegex("motley [0-9.]+\n"));
}

TEST(Cli, HelpAndVersionTakeNothingElse) {
  for (const char* word : {"--version", "version", "--help", "-h"}) {
    const Outcome outcome = motley({word, "extra"});
    EXPECT_EQ(outcome.status, 2) << word;
    EXPECT_EQ(outcome.output, "") << word;
    EXPECT_EQ(outcome.errors, cat("motley: one argument too many, 'extra' (motley ", word,
                                  "): write ", word, " alone\n"));
  }
}

TEST(Cli, CommandsTellTheirUsage) {
  for (const char* word : {"--help", "-h"}) {
    const Outcome outcome = motley({"inspect", word});
    EXPECT_EQ(outcome.status, 0) << word;
    EXPECT_THAT(outcome.output, StartsWith("usage: motley inspect [PATH]")) << word;
  }
}

TEST(Cli, HelpOfACommandIsItsUsage) {
  EXPECT_EQ(motley({"help", "serve"}).output, motley({"serve", "--help"}).output);
  EXPECT_EQ(motley({"help", "serv"}).errors,
            "motley: unknown command 'serv': did you mean serve?\n");
  EXPECT_EQ(motley({"help", "serve", "extra"}).errors,
            "motley: one argument too many, 'extra' (motley help): write one command after help\n");
  EXPECT_EQ(motley({"version"}).output, motley({"--version"}).output);
}

TEST(Cli, OptionsOfOtherServersAreNamed) {
  for (const char* option : {"--lora", "--alias", "-c", "-ngl", "-m", "-p"}) {
    const Outcome outcome = motley({"serve", "m", cat(option, "=1")});
    EXPECT_EQ(outcome.status, 2) << option;
    EXPECT_THAT(outcome.errors, AllOf(HasSubstr(cat("'s ", option, " is ")), HasSubstr("here")));
  }
}

TEST(Cli, EveryHelpHasExamplesThatItsCommandTakes) {
  for (const Command& command : {serve_command(), chat_command(), ask_command(), score_command(),
                                 tokenize_command(), inspect_command(), bench_command()}) {
    const CommandSpec& spec = command.spec;
    EXPECT_GE(spec.examples.size(), 2U) << spec.name;
    for (const std::string_view example : spec.examples) {
      const std::string before = cat("motley ", spec.name, " ");
      ASSERT_THAT(std::string(example), StartsWith(before));
      std::istringstream shell(std::string(example.substr(before.size())));
      std::vector<std::string> words;
      for (std::string word; shell >> word && word != "<" && word != "|";) words.push_back(word);
      const auto parsed = Arguments::parse(spec, words);
      EXPECT_TRUE(parsed.ok()) << example << ": " << parsed.error().message();
      EXPECT_THAT(usage(spec), HasSubstr(std::string(example)));
    }
  }
}

TEST(Cli, TheEndOfMemoryIsAnErrorLikeAnyOther) {
  std::string line;
  auto output = [](std::string_view) { throw std::bad_alloc(); };
  auto errors = [&](std::string_view text) { line += text; };
  const std::vector<std::string> words = {"--version"};
  EXPECT_EQ(run(words, {}, output, errors), 1);
  EXPECT_EQ(line, "motley: not enough memory: free some, or use a machine with more\n");
}

TEST(Cli, ErrorsAreOneLineThatSaysWhatToDo) {
  const Outcome outcome = motley({});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.errors, "motley: no command: see motley --help\n");
}

TEST(Cli, SuggestsWhatWasMeant) {
  EXPECT_EQ(motley({"inspcet", "x"}).errors,
            "motley: unknown command 'inspcet': did you mean inspect?\n");
  EXPECT_EQ(motley({"inspect", "--jsno", "x"}).errors,
            "motley: unknown option '--jsno' (motley inspect): did you mean --json?\n");
}

TEST(Cli, PromisedCommandsSayThatTheyAreNotThereYet) {
  const Outcome outcome = motley({"quantize", "model"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.errors,
              AllOf(StartsWith("motley: "), HasSubstr("not there yet"), EndsWith("\n")));
}

TEST(Cli, RefusesWrongCalls) {
  EXPECT_THAT(motley({"inspect"}).errors, HasSubstr("no PATH (motley inspect)"));
  EXPECT_THAT(motley({"inspect", "a", "b"}).errors, HasSubstr("one argument too many, 'b'"));
  EXPECT_THAT(motley({"inspect", "--json", "--json", "a"}).errors, HasSubstr("given twice"));
  EXPECT_THAT(motley({"inspect", "--json=1", "a"}).errors, HasSubstr("takes no value"));
  EXPECT_EQ(motley({"inspect"}).status, 2);
}

TEST(Cli, ANewlineInAnArgumentStaysOnTheLine) {
  const Outcome outcome = motley({"inspect", "no\nsuch"});
  EXPECT_EQ(outcome.errors, "motley: no such file or folder (no\\nsuch): check the path\n");
  EXPECT_EQ(outcome.status, 1);
}

TEST(Cli, WhatRunsAModelTakesTheSameOptionsOfComputing) {
  for (const char* command : {"serve", "chat", "score"}) {
    const std::string usage = motley({command, "--help"}).output;
    for (const OptionSpec& option : compute_option_specs())
      EXPECT_THAT(usage, HasSubstr(std::string(option.name))) << command;
  }
}

TEST(Cli, OneReplicaIsWhatOthersThanServeUse) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"chat", MOTLEY_DEMO_MODEL},
        {"score", MOTLEY_DEMO_MODEL, "--input", "in", "--output", "out"},
        {"inspect", MOTLEY_DEMO_MODEL},
        {"bench", MOTLEY_DEMO_MODEL}}) {
    std::vector<std::string> call = words;
    call.insert(call.end(), {"--dp", "2"});
    const Outcome outcome = motley(call);
    EXPECT_EQ(outcome.status, 2) << words[0];
    EXPECT_THAT(outcome.errors,
                HasSubstr("uses one replica so far (--dp): leave it out, or use serve\n"));
  }
}

TEST(Cli, WhatGpusExchangeNumbersOverIsNotAskedOnACpu) {
  EXPECT_EQ(
      motley({"bench", MOTLEY_DEMO_MODEL, "--device", "cpu", "--tp", "2", "--ranks-over", "nccl"})
          .errors,
      "motley: ranks on a CPU exchange numbers over the host's memory (--ranks-over): leave "
      "it out\n");
}

TEST(ComputeSettings, SayWhatWasAskedFor) {
  const CommandSpec spec{
      .name = "example", .summary = "", .positionals = {}, .options = compute_option_specs()};
  const auto read = [&](const std::vector<std::string>& words) {
    return read_compute_settings(Arguments::parse(spec, words).value());
  };
  const serving::ComputeSettings plain = read({}).value();
  EXPECT_FALSE(plain.exact || plain.experts_backend || plain.factors || plain.batch_invariant);
  EXPECT_TRUE(plain.graphs && plain.fusion);
  EXPECT_FALSE(plain.kv_codes);
  EXPECT_EQ(plain.ranks, 1);
  const serving::ComputeSettings asked =
      read({"--compute", "bf16", "--batch-invariant", "--adapter-dtype=fp8", "--experts-backend",
            "reference", "--no-graphs", "--no-fusion"})
          .value();
  EXPECT_EQ(asked.exact, false);
  EXPECT_TRUE(asked.batch_invariant);
  EXPECT_EQ(asked.factors, DType::f8_e4m3);
  EXPECT_EQ(asked.experts_backend, "reference");
  EXPECT_FALSE(asked.graphs || asked.fusion);
  EXPECT_TRUE(read({"--kv-dtype", "fp8"}).value().kv_codes);
  EXPECT_FALSE(read({"--kv-dtype", "auto"}).value().kv_codes);
  EXPECT_EQ(read({"--kv-dtype", "int8"}).error().where(), "--kv-dtype");
  EXPECT_EQ(read({"--tp", "3"}).value().ranks, 3);
  EXPECT_EQ(read({"--tp", "0"}).error().where(), "--tp");
  EXPECT_EQ(read({"--tp", "3"}).value().expert_groups, 1);
  EXPECT_EQ(read({"--tp", "4", "--ep", "2"}).value().ranks, 4);
  EXPECT_EQ(read({"--tp", "4", "--ep", "2"}).value().expert_groups, 2);
  EXPECT_EQ(read({"--ep", "3"}).value().ranks, 3);
  EXPECT_EQ(read({"--ep", "2", "--devices", "0,1,2,3"}).value().ranks, 4);
  EXPECT_EQ(read({"--tp", "4", "--ep", "tp"}).value().expert_groups, 4);
  EXPECT_EQ(read({"--dp", "2", "--devices", "0,1,2,3", "--ep", "tp"}).value().expert_groups, 2);
  EXPECT_EQ(read({"--ep", "tp"}).value().ranks, 1);
  EXPECT_EQ(read({"--tp", "3", "--ep", "2"}).error().message(),
            "3 ranks do not make 2 equal groups (--ep): use a number that divides the ranks, or "
            "--tp 2");
  EXPECT_EQ(read({"--tp", "1", "--ep", "2"}).error().where(), "--ep");
  EXPECT_EQ(read({"--ep", "0"}).error().where(), "--ep");
  const serving::ComputeSettings two = read({"--devices", "1,0"}).value();
  EXPECT_EQ(two.ranks, 2);
  EXPECT_THAT(two.gpus, testing::ElementsAre(1, 0));
  EXPECT_EQ(two.device.index, 1);
  EXPECT_EQ(two.device.kind, tensor::DeviceChoice::Kind::cuda);
  EXPECT_TRUE(read({"--devices", "0,1", "--tp", "2", "--device", "cuda"}).ok());
  EXPECT_EQ(read({"--devices", "0,1", "--tp", "3"}).error().where(), "--devices");
  EXPECT_EQ(read({"--devices", "0,0"}).error().where(), "--devices");
  EXPECT_EQ(read({"--devices", "0,1", "--device", "cpu"}).error().where(), "--devices");
  EXPECT_EQ(read({"--tp", "2", "--device", "cuda:1"}).error().where(), "--device");
  EXPECT_EQ(read({"--adapter-dtype", "int4"}).error().where(), "--adapter-dtype");
  EXPECT_EQ(plain.ranks_over, dist::RanksOver::automatic);
  EXPECT_EQ(read({"--tp", "2", "--ranks-over", "nccl"}).value().ranks_over, dist::RanksOver::nccl);
  EXPECT_EQ(read({"--tp", "2", "--ranks-over", "mpi"}).error().where(), "--ranks-over");
  EXPECT_EQ(plain.replicas, 1);
  const serving::ComputeSettings replicas = read({"--dp", "2", "--devices", "4,1,3,0"}).value();
  EXPECT_EQ(replicas.replicas, 2);
  EXPECT_EQ(replicas.ranks, 2);
  EXPECT_EQ(read({"--dp", "2", "--devices", "0,1"}).value().ranks, 1);
  EXPECT_TRUE(read({"--dp", "2", "--device", "cpu"}).ok());
  for (const char* wrong : {"0", "65", "two", ""})
    EXPECT_EQ(read({"--dp", wrong}).error().where(), "--dp") << wrong;
  EXPECT_EQ(read({"--dp", "8", "--tp", "9"}).error().where(), "--dp");
  EXPECT_THAT(read({"--dp", "2", "--tp", "2", "--devices", "0,1"}).error().message(),
              HasSubstr("names 2 GPUs for --dp 2, 2 ranks each (--devices): name one for each"));
  EXPECT_EQ(read({"--dp", "2", "--devices", "0,1,2"}).error().where(), "--devices");
  EXPECT_EQ(read({"--dp", "2", "--device", "cuda:1"}).error().where(), "--device");
  EXPECT_EQ(read({"--compute", "f16"}).error().where(), "--compute");
}

const CommandSpec example{.name = "example", .summary = "", .positionals = {}, .options = {}};

TEST(Arguments, ReadsBothSpellingsAndRepeats) {
  CommandSpec spec = example;
  spec.positionals = {"MODEL"};
  spec.options = {{"--port", "N", "", false}, {"--adapter", "NAME=PATH", "", true}};
  const std::vector<std::string> words = {"--adapter", "a=1", "model", "--adapter=b=2",
                                          "--port=80"};
  const auto arguments = Arguments::parse(spec, words);
  ASSERT_TRUE(arguments.ok()) << arguments.error().message();
  EXPECT_EQ(arguments->positional(0), "model");
  EXPECT_EQ(*arguments->value("--port"), "80");
  EXPECT_THAT(arguments->values("--adapter"), testing::ElementsAre("a=1", "b=2"));
  EXPECT_FALSE(arguments->has("--host"));
  EXPECT_TRUE(arguments->values("--host").empty());
}

TEST(Arguments, NamesMayHaveUnderscores) {
  CommandSpec spec = example;
  spec.options = {{"--max-queue", "N", ""}};
  const std::vector<std::string> words = {"--max_queue=a_b"};
  EXPECT_EQ(*Arguments::parse(spec, words)->value("--max-queue"), "a_b");
}

TEST(Arguments, NothingIsAnOptionBehindTwoDashes) {
  CommandSpec spec = example;
  spec.positionals = {"PATH"};
  const std::vector<std::string> words = {"--", "--odd-name"};
  const auto arguments = Arguments::parse(spec, words);
  ASSERT_TRUE(arguments.ok());
  EXPECT_EQ(arguments->positional(0), "--odd-name");
}

TEST(Arguments, RefusesAMissingValue) {
  CommandSpec spec = example;
  spec.options = {{"--port", "N", ""}};
  const std::vector<std::string> words = {"--port"};
  EXPECT_THAT(Arguments::parse(spec, words).error().message(),
              HasSubstr("--port needs a value (motley example): write --port N"));
}

// Known only once the model is there.
TEST(Cli, OptionsForStatesAreRefusedWhereAModelKeepsNone) {
  for (const auto& [option, value] : {std::pair("--state-memory", "1M"),
                                      {"--state-host-memory", "1M"},
                                      {"--state-snapshots", "off"}}) {
    const Outcome outcome =
        motley({"chat", MOTLEY_DEMO_MODEL, "--device", "cpu", "--kv-memory", "4M", option, value});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.errors,
                HasSubstr(cat("motley: no layer of this model keeps a state for each sequence (",
                              option, "): leave it out\n")));
  }
}

}  // namespace
}  // namespace motley::cli
