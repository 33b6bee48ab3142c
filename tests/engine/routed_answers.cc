#include "engine/routed_answers.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/system/files.h"

namespace motley::engine_tests {

using score_tests::at;

namespace {

constexpr std::size_t max_bytes = 16'000'000;  // of the file

std::vector<json::Value> recorded_lines() {
  const auto file = score_tests::goldens_folder().parent_path() / "engine/routed_experts.jsonl";
  const std::string text = read_text(file, max_bytes).value();
  std::vector<json::Value> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(
        json::parse(std::string_view(text).substr(begin, end - begin), file.string()).value());
    begin = end + 1;
  }
  return lines;
}

std::vector<std::int32_t> ids_of(const json::Value& list) {
  std::vector<std::int32_t> ids;
  for (const json::Value& id : *list.if_array())
    ids.push_back(static_cast<std::int32_t>(id.as_number("id").value()));
  return ids;
}

engine::Request request_of(const json::Value& line) {
  engine::Request request{.tokens = ids_of(at(line, "prompt")),
                          .sampling = {.temperature = 0},
                          .max_tokens = std::ssize(*at(line, "answer").if_array()),
                          .routed_experts_from = 0};
  if (const std::string* const adapter = at(line, "adapter").if_string())
    request.adapters.push_back({.name = *adapter});
  return request;
}

// Those of a token and a layer, in rising order; of a layer without experts, zeros.
std::vector<std::int32_t> experts_at(const std::vector<std::uint8_t>& routed,
                                     const engine::RoutedExpertsSizes& sizes, std::size_t token,
                                     std::size_t layer) {
  const auto top_k = static_cast<std::size_t>(sizes.top_k);
  const std::size_t first = token * sizes.bytes_of_token() + layer * top_k;
  std::vector<std::int32_t> experts;
  for (std::size_t i = first; i < first + top_k && i < routed.size(); ++i)
    experts.push_back(routed[i]);
  std::ranges::sort(experts);
  return experts;
}

void expect_experts(const Answer& answer, const json::Value& line,
                    const engine::RoutedExpertsSizes& sizes) {
  ASSERT_FALSE(answer.error) << answer.error->message();
  EXPECT_EQ(answer.tokens[0], ids_of(at(line, "answer")));
  const std::vector<std::uint8_t> routed = routed_of(answer, 0);
  const json::Array& tokens = *at(line, "experts").if_array();
  ASSERT_EQ(routed.size(), tokens.size() * sizes.bytes_of_token());
  for (std::size_t token = 0; token < tokens.size(); ++token) {
    const json::Array& layers = *tokens[token].if_array();
    ASSERT_EQ(layers.size(), static_cast<std::size_t>(sizes.layers));
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      std::vector<std::int32_t> expected = ids_of(layers[layer]);
      if (expected.empty()) expected.resize(static_cast<std::size_t>(sizes.top_k));
      EXPECT_EQ(experts_at(routed, sizes, token, layer), expected)
          << "token " << token << ", layer " << layer;
    }
  }
}

}  // namespace

std::vector<std::string> models_with_routed_experts() {
  std::vector<std::string> models;
  for (const json::Value& line : recorded_lines()) {
    const std::string& model = *at(line, "model").if_string();
    if (models.empty() || models.back() != model) models.push_back(model);
  }
  return models;
}

void expect_recorded_experts(GoldenEngine& world, const std::string& model) {
  std::vector<json::Value> lines = recorded_lines();
  std::erase_if(lines,
                [&](const json::Value& line) { return *at(line, "model").if_string() != model; });
  std::vector<std::shared_ptr<Answer>> answers;
  for (const json::Value& line : lines) answers.push_back(world.submit(request_of(line)));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    SCOPED_TRACE(cat(model, ", ", json::write(at(lines[i], "adapter"))));
    expect_experts(answers[i]->wait(), lines[i], world.engine().routed_experts());
  }
}

std::vector<std::uint8_t> routed_of(const Answer& answer, std::size_t choice) {
  std::vector<std::uint8_t> routed = answer.routed_prompt;
  routed.insert(routed.end(), answer.routed[choice].begin(), answer.routed[choice].end());
  return routed;
}

}  // namespace motley::engine_tests
