// Bytes a second that one core encodes, and tokens that it decodes:
//   build/release/bench/bench_tokenizer                       the golden set's tokenizers and texts
//   build/release/bench/bench_tokenizer TOKENIZER.json TEXT   one tokenizer, one file of text
// tools/bench_tokenizer.py measures the `tokenizers` package beside it.

#include "text/tokenizer.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/system/files.h"

namespace motley {
namespace {

// A tokenizer, and a text in pieces as long as prompts are.
struct Material {
  text::Tokenizer tokenizer;
  std::vector<std::string> prompts;
};

constexpr std::size_t prompt_bytes = 8192;

std::vector<std::string> cut(std::string_view text) {
  std::vector<std::string> prompts;
  while (!text.empty()) {
    std::size_t end = std::min(prompt_bytes, text.size());
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    prompts.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return prompts;
}

void encode(benchmark::State& state, const Material& material) {
  std::int64_t bytes = 0;
  std::int64_t tokens = 0;
  for ([[maybe_unused]] auto iteration : state) {
    for (const std::string& prompt : material.prompts) {
      const auto ids = material.tokenizer.encode(prompt, {.add_special_tokens = false});
      bytes += static_cast<std::int64_t>(prompt.size());
      tokens += static_cast<std::int64_t>(ids.value().size());
    }
  }
  state.SetBytesProcessed(bytes);
  state.counters["bytes_a_token"] = static_cast<double>(bytes) / static_cast<double>(tokens);
}

void decode(benchmark::State& state, const Material& material) {
  std::vector<std::vector<std::int32_t>> prompts;
  for (const std::string& prompt : material.prompts)
    prompts.push_back(material.tokenizer.encode(prompt, {.add_special_tokens = false}).value());
  std::int64_t tokens = 0;
  for ([[maybe_unused]] auto iteration : state) {
    for (const auto& ids : prompts) {
      benchmark::DoNotOptimize(material.tokenizer.decode(ids, true));
      tokens += static_cast<std::int64_t>(ids.size());
    }
  }
  state.SetItemsProcessed(tokens);
}

Result<void> add(const std::string& name, const std::filesystem::path& tokenizer_file,
                 std::string_view text) {
  MOTLEY_TRY(const MappedFile file, MappedFile::open(tokenizer_file));
  MOTLEY_TRY(text::Tokenizer tokenizer,
             text::Tokenizer::parse(file.text(), tokenizer_file.string()));
  const auto material = std::make_shared<Material>(Material{std::move(tokenizer), cut(text)});
  const auto run_as = [&](std::string_view what,
                          void (*measure)(benchmark::State&, const Material&)) {
    benchmark::RegisterBenchmark(cat(name, "/", what).c_str(), [=](benchmark::State& state) {
      measure(state, *material);
    })->Unit(benchmark::kMillisecond);
  };
  run_as("encode", encode);
  run_as("decode", decode);
  return {};
}

Result<void> add_golden_set() {
  const std::filesystem::path folder = MOTLEY_TEXT_GOLDENS;
  MOTLEY_TRY(const std::string lines, read_text(folder / "texts.jsonl", std::size_t{1} << 24));
  std::string text;
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = lines.find('\n', at);
    MOTLEY_TRY(const json::Value line,
               json::parse(std::string_view(lines).substr(at, end - at), "texts.jsonl"));
    if (const std::string* read = line.if_string()) text += *read + "\n";
    at = end + 1;
  }
  for (const std::string_view name : {"qwen2", "llama3", "o200k", "deepseek", "llama2_legacy"})
    MOTLEY_TRY_VOID(add(std::string(name), folder / name / "tokenizer.json", text));
  return {};
}

Result<void> add_files(const std::filesystem::path& tokenizer, const std::filesystem::path& text) {
  MOTLEY_TRY(const std::string read, read_text(text, std::size_t{1} << 30));
  return add(text.stem().string(), tokenizer, read);
}

}  // namespace
}  // namespace motley

int main(int count, char** words) {
  benchmark::Initialize(&count, words);
  const auto added = count == 3 ? motley::add_files(words[1], words[2]) : motley::add_golden_set();
  if (!added.ok() || (count != 1 && count != 3)) {
    const std::string why =
        added.ok() ? "call it with TOKENIZER.json TEXT" : added.error().message();
    std::fprintf(stderr, "bench_tokenizer: %s\n", why.c_str());
    return 2;
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
