// models/demo against the log-probabilities that its trainer's side recorded
// (tools/demo_model/check.py), and against itself: each adapter must speak its own way better than
// any other voice.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/system/files.h"
#include "base/system/temporary_folder.h"
#include "cli/run_motley.h"

namespace motley {
namespace {

namespace fs = std::filesystem;

const fs::path model = MOTLEY_DEMO_MODEL;
constexpr std::size_t compared_lines = 16;  // of each voice, with every adapter
constexpr std::int64_t answer_begins = 2;   // <|assistant|>

struct Line {
  std::string voice;  // "" is the base
  std::vector<std::int64_t> tokens;
  std::vector<double> recorded;  // of tokens 1, 2, ...
};

std::vector<double> numbers(const json::Value& list, std::size_t from) {
  std::vector<double> values;
  const json::Array& array = *list.if_array();
  for (std::size_t i = from; i < array.size(); ++i)
    values.push_back(array[i].as_number("token_logprobs").value());
  return values;
}

std::vector<json::Value> read_lines(const fs::path& path) {
  std::vector<json::Value> values;
  const std::string text = read_text(path, 64'000'000).value();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    values.push_back(json::parse(text.substr(at, end - at), path.string()).value());
    at = end + 1;
  }
  return values;
}

std::vector<Line> held_out() {
  std::vector<Line> lines;
  for (const json::Value& value : read_lines(model / "held_out.jsonl")) {
    const json::Object& object = *value.if_object();
    Line line;
    if (const std::string* const name = object.find("adapter")->if_string()) line.voice = *name;
    for (const json::Value& token : *object.find("token_ids")->if_array())
      line.tokens.push_back(*token.if_integer());
    line.recorded = numbers(*object.find("token_logprobs"), 1);
    lines.push_back(std::move(line));
  }
  return lines;
}

// "" first, then the adapters.
std::vector<std::string> voices() {
  std::vector<std::string> names = {""};
  for (const auto& entry : fs::directory_iterator(model / "adapters"))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

// Log-probabilities of tokens 1, 2, ... of each line, all in one call of `motley score`.
std::vector<std::vector<double>> score(const std::vector<Line>& lines, const std::string& compute) {
  const TemporaryFolder folder;
  const fs::path input = folder.path() / "lines.jsonl";
  std::string text;
  for (const Line& line : lines) {
    text += cat("{\"token_ids\": [", join(line.tokens), "]");
    if (!line.voice.empty()) text += cat(", \"adapter\": \"", line.voice, "\"");
    text += "}\n";
  }
  std::ofstream(input) << text;
  std::vector<std::string> words = {"score",     model.string(),
                                    "--device",  MOTLEY_DEMO_DEVICE,
                                    "--input",   input.string(),
                                    "--output",  (folder.path() / "scores.jsonl").string(),
                                    "--top",     "0",
                                    "--compute", compute};
  for (const std::string& voice : voices()) {
    if (voice.empty()) continue;
    words.emplace_back("--adapter");
    words.push_back(cat(voice, "=", (model / "adapters" / voice).string()));
  }
  const cli::Outcome outcome = cli::motley(words);
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  std::vector<std::vector<double>> scores;
  for (const json::Value& value : read_lines(folder.path() / "scores.jsonl"))
    scores.push_back(numbers(*value.if_object()->find("token_logprobs"), 1));
  return scores;
}

void expect_close(const std::string& compute, double most) {
  const std::vector<Line> lines = held_out();
  const auto scores = score(lines, compute);
  ASSERT_EQ(scores.size(), lines.size());
  struct Mean {
    double sum = 0;
    std::int64_t count = 0;
  };
  std::map<std::string, Mean> means;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    Mean& mean = means[lines[i].voice];
    ASSERT_EQ(scores[i].size(), lines[i].recorded.size());
    for (std::size_t t = 0; t < scores[i].size(); ++t) {
      const double difference = scores[i][t] - lines[i].recorded[t];
      mean.sum += 0.5 * difference * difference;
      ++mean.count;
    }
  }
  EXPECT_EQ(means.size(), voices().size());
  for (const auto& [voice, mean] : means)
    EXPECT_LE(mean.sum / static_cast<double>(mean.count), most) << quote(voice);
}

TEST(DemoModel, ScoresAsItsTrainerDoesInFloat32) { expect_close("f32", 1e-5); }

TEST(DemoModel, ScoresNearlySoInBfloat16) { expect_close("bf16", 5e-3); }

TEST(DemoModel, EveryAdapterSpeaksItsOwnWayBest) {
  std::vector<Line> lines;
  std::map<std::string, std::size_t> taken;
  std::vector<std::string> texts;
  for (const Line& line : held_out()) {
    if (taken[line.voice]++ >= compared_lines) continue;
    for (const std::string& reader : voices()) {
      texts.push_back(line.voice);
      lines.push_back({.voice = reader, .tokens = line.tokens});
    }
  }
  const auto scores = score(lines, "f32");
  // Sum over the answers of a text, by text and reader.
  std::map<std::string, std::map<std::string, double>> sums;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto begin = std::ranges::find(lines[i].tokens, answer_begins) - lines[i].tokens.begin();
    double& sum = sums[texts[i]][lines[i].voice];
    for (std::size_t t = static_cast<std::size_t>(begin); t < scores[i].size(); ++t)
      sum += scores[i][t];
  }
  for (const auto& [text, by_reader] : sums) {
    const auto best =
        std::ranges::max_element(by_reader, {}, [](const auto& each) { return each.second; });
    EXPECT_EQ(best->first, text);
  }
}

}  // namespace
}  // namespace motley
