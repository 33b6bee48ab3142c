#include "cli/options/arguments/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/temporary_folder.h"
#include "cli/command.h"
#include "cli/run_motley.h"

namespace motley::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// "key=value" of each value.
std::vector<std::string> pairs(std::string_view text) {
  const auto options = parse_config(text, "f");
  EXPECT_TRUE(options.ok()) << options.error().message();
  std::vector<std::string> found;
  if (!options.ok()) return found;
  for (const FileOption& option : *options) {
    if (option.values.empty()) found.push_back(option.key);
    for (const FileValue& value : option.values) found.push_back(cat(option.key, "=", value.text));
  }
  return found;
}

std::string refusal(std::string_view text) {
  const auto options = parse_config(text, "f.yaml");
  return options.ok() ? "taken" : options.error().message();
}

TEST(ConfigFile, ScalarsAreTextAndListsAreRepeated) {
  EXPECT_THAT(pairs("port: 8000\nname: '007'\nadapter:\n  - a=b\n  - c=d\nx: [1, two]\nnothing:\n"),
              ElementsAre("port=8000", "name=007", "adapter=a=b", "adapter=c=d", "x=1", "x=two",
                          "nothing"));
  EXPECT_THAT(pairs("# only a comment\n"), IsEmpty());
  EXPECT_THAT(pairs(""), IsEmpty());
  EXPECT_THAT(pairs("---\n...\n"), IsEmpty());
}

TEST(ConfigFile, MapsAreJson) {
  EXPECT_THAT(pairs("a: {n: 3, x: 2.5, s: '3', t: true, z: null, l: [1, b]}\n"
                    "m:\n- name: poet\n  path: p\n- name: clerk\n  path: q\n"),
              ElementsAre(R"(a={"n":3,"x":2.5,"s":"3","t":true,"z":null,"l":[1,"b"]})",
                          R"(m={"name":"poet","path":"p"})", R"(m={"name":"clerk","path":"q"})"));
}

TEST(ConfigFile, JsonSaysTheSame) {
  EXPECT_THAT(pairs(R"({"port": 8000, "name": "007", "adapter": ["a=b"], "no-graphs": true,
                        "a": {"n": 3}, "nothing": null})"),
              ElementsAre("port=8000", "name=007", "adapter=a=b", "no-graphs=true", R"(a={"n":3})",
                          "nothing"));
}

TEST(ConfigFile, RefusesWhatOptionsAreNot) {
  EXPECT_EQ(refusal("a: &x 1\nb: *x\n"),
            "an anchor, an alias or a tag (f.yaml:1): write the value out");
  EXPECT_THAT(refusal("a: !!str 1\n"), HasSubstr("a tag (f.yaml:1)"));
  EXPECT_EQ(refusal("a: 1\n---\nb: 2\n"),
            "a second document (f.yaml:2): write all options into one");
  EXPECT_EQ(refusal("a-b: 1\na_b: 2\n"), "a key twice (f.yaml:2, a_b): keep one of them");
  EXPECT_EQ(refusal("- a\n"), "not a map of options (f.yaml:1): write KEY: VALUE on each line");
  EXPECT_EQ(refusal("x:\n  - [1]\n"),
            "a list in a list (f.yaml:1, x): write one value for each item");
  EXPECT_EQ(refusal("--port: 1\n"),
            "a key with dashes before it (f.yaml:1, --port): write the option's name without them");
  EXPECT_EQ(refusal("a: {b: 1, b: 2}\n"), "key 'b' twice (f.yaml:1): keep one of them");
  EXPECT_THAT(refusal("a: [1\nb: 2\n"), HasSubstr("not YAML: "));
  EXPECT_THAT(refusal("a: {b: {c: {d: {e: {f: {g: {h: {i: 1}}}}}}}}\n"),
              HasSubstr("too many levels"));
  EXPECT_THAT(refusal("? [a]\n: 1\n"), HasSubstr("a key that is no word (f.yaml:1)"));
  EXPECT_THAT(refusal("{\"a\": 1, \"a\": 2}"), HasSubstr("f.yaml"));
}

// Of the command serve.

class ServeConfig : public testing::Test {
 protected:
  Result<Arguments> parse(std::string_view text, std::vector<std::string> words = {}) {
    words.insert(words.begin(), {"--config", folder_.file("server.yaml", text).string()});
    return Arguments::parse(serve_command().spec, words);
  }
  std::string refusal(std::string_view text, std::vector<std::string> words = {}) {
    const auto parsed = parse(text, std::move(words));
    if (parsed.ok()) return "taken";
    const std::string message = parsed.error().message();
    const std::string path = cat(folder_.path().string(), "/");
    const std::size_t at = message.find(path);
    return at == std::string::npos ? message : std::string(message).erase(at, path.size());
  }

  TemporaryFolder folder_;
};

TEST_F(ServeConfig, HoldsOursAndVllms) {
  const auto parsed = parse(
      "model: m\nport: 0\nadapter: [a=b]\nno-graphs: true\nprivate-prefixes: false\n"
      "tensor_parallel_size: 2\nserved-model-name: [one, two]\nenable-lora: yes\n"
      "lora-modules:\n  - {name: poet, path: p}\nmax-model-len: 32K\nenforce-eager: off\n"
      "enable-auto-tool-choice: true\nspeculative-config: {method: mtp}\n");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(parsed->positional(0), "m");
  EXPECT_EQ(*parsed->value("--tp"), "2");
  EXPECT_TRUE(parsed->has("--no-graphs"));
  EXPECT_FALSE(parsed->has("--private-prefixes"));
  EXPECT_THAT(parsed->values("--name"), ElementsAre("one", "two"));
  EXPECT_THAT(parsed->values("--lora-modules"), ElementsAre(R"({"name":"poet","path":"p"})"));
  EXPECT_EQ(parsed->ignored().size(), 3U);
}

TEST_F(ServeConfig, TheCommandLineWins) {
  const std::string file = "model: m\nport: 1\nadapter: [a=b, c=d]\ntensor-parallel-size: 2\n";
  const auto parsed = parse(file, {"other", "--tp", "3", "--adapter", "x=y"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(parsed->positional(0), "other");
  EXPECT_EQ(*parsed->value("--tp"), "3");
  EXPECT_EQ(*parsed->value("--port"), "1");
  EXPECT_THAT(parsed->values("--adapter"), ElementsAre("x=y"));
}

TEST_F(ServeConfig, ErrorsNameTheFileTheLineAndTheKey) {
  EXPECT_EQ(refusal("model: m\nprot: 1\n"),
            "unknown option '--prot' (server.yaml:2, prot): did you mean --port?");
  EXPECT_EQ(refusal("model: m\nno-graphs: 3\n"),
            "--no-graphs is a switch (server.yaml:2, no-graphs): write true or false");
  EXPECT_EQ(refusal("model: m\nport: [1, 2]\n"),
            "--port is given twice (server.yaml:2, port): keep one of them");
  EXPECT_EQ(refusal("model: m\ndtype: half\n"),
            "--dtype half asks for float16, which motley does not compute in (server.yaml:2, "
            "dtype): use bfloat16, or float32, which is exact");
  EXPECT_EQ(refusal("model: m\nconfig: x\n"),
            "a file names another (server.yaml:2, config): write all options into one");
  EXPECT_EQ(refusal("port: 1\n"), "no MODEL (motley serve): see motley serve --help");
  EXPECT_EQ(refusal("model: [a, b]\n"),
            "--model has several values (server.yaml:1, model): write one");
  EXPECT_EQ(motley({"serve", "m", "--config", "no/such"}).status, 1);
}

}  // namespace
}  // namespace motley::cli
