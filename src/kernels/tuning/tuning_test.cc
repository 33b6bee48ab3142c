#include "kernels/tuning/tuning.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::kernels {
namespace {

using testing::HasSubstr;

Tuning some_tuning() {
  return {.file = "card.json",
          .card = "NVIDIA H200",
          .driver = "CUDA 13.0",
          .date = "2026-11-26",
          .model = "qwen3_moe",
          .dense = {{.shape = {.kind = WeightKind::int4,
                               .group = 128,
                               .inputs = 2048,
                               .outputs = {4096, 512, 512}},
                     .rows = {{.up_to = 128, .kernel = "gemv_streamed_codes"},
                              {.up_to = TunedRow::any, .kernel = "decoded"}},
                     .times = {.rows = {1, 256},
                               .candidates = {{.name = "gemv_streamed_codes", .us = {4.5, 31.0}},
                                              {.name = "decoded", .us = {{}, 20.25}}}}}},
          .experts = {{.shape = {.bits = 4,
                                 .experts = 128,
                                 .hidden = 2048,
                                 .intermediate = 768,
                                 .experts_per_token = 8,
                                 .adapters = true},
                       .rows = {{.kernel = "128x8 boxes"}},
                       .times = {}}}};
}

TEST(Tuning, ReadsWhatItWrote) {
  Tuning tuning = some_tuning();
  for (const std::optional<std::int64_t> from : {std::optional<std::int64_t>(), {0}, {4096}}) {
    tuning.shared_shrinks_from = from;
    const auto read = parse_tuning(write_tuning(tuning), "card.json");
    ASSERT_TRUE(read.ok()) << read.error().message();
    EXPECT_TRUE(*read == tuning);
  }
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Tuning, RefusesWithFileAndKey) {
  struct Case {
    std::string_view from, to, message;
  };
  const Case cases[] = {
      {"\"card\"", "\"cart\"", "unknown key 'cart' (card.json)"},
      {"\"motley_tuning\": 1", "\"motley_tuning\": 2", "version 2"},
      {"\"int4\"", "\"int5\"", "unknown format 'int5'"},
      {"\"group\": 128", "\"group\": -1", "-1 is not from 0"},
      {"\"group\": 128", "\"group\": 1.5", "card.json, dense[0], group"},
      {"\"up_to\": 128", "\"up_to\": null", "dense[0], kernels[1], up_to"},
      {"\"up_to\": 128", "\"up_to\": 0", "0 is not from 1"},
      {"256\n", "1\n", "rows that do not ascend"},
      {"4.5", "-4.5", "a time that is not above zero"},
      {"4.5,", "", "1 times of 2 numbers of rows"},
      {"\"inputs\"", "\"width\"", "unknown key 'width' (card.json, dense[0])"},
      {"\"adapters\": true", "\"adapters\": 1", "card.json, experts[0], adapters"},
      {"{", "[{", "card.json"},
  };
  const std::string text = write_tuning(some_tuning());
  for (const Case& each : cases) {
    const auto read = parse_tuning(replaced(text, each.from, each.to), "card.json");
    ASSERT_FALSE(read.ok()) << each.to;
    EXPECT_THAT(read.error().message(), HasSubstr(each.message));
    EXPECT_THAT(read.error().message(), HasSubstr("make the file again"));
    EXPECT_EQ(read.error().code(), ErrorCode::bad_file);
  }
}

TEST(Tuning, RefusesAShapeTwice) {
  Tuning tuning = some_tuning();
  tuning.dense.push_back(tuning.dense[0]);
  const auto read = parse_tuning(write_tuning(tuning), "card.json");
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message(), HasSubstr("card.json, dense[1]"));
}

}  // namespace
}  // namespace motley::kernels
