#include "cli/bench/tune/command.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/temporary_folder.h"
#include "cli/run_motley.h"
#include "kernels/tuning/tuning.h"

namespace motley::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(BenchTune, IsRefusedOnACpu) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "f.json").string();
  const Outcome outcome =
      motley({"bench", MOTLEY_DEMO_MODEL, "--device", "cpu", "--tune", "--output", file});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.errors, HasSubstr("measures the kernels of a GPU"));
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(BenchTune, RefusesOptionsThatDoNotFit) {
  EXPECT_THAT(motley({"bench", MOTLEY_DEMO_MODEL, "--tune"}).errors, HasSubstr("no file to write"));
  EXPECT_THAT(motley({"bench", MOTLEY_DEMO_MODEL, "--output", "f"}).errors,
              HasSubstr("add --tune"));
  EXPECT_THAT(motley({"bench", "--url", "http://127.0.0.1:1", "--tune", "--output", "f"}).errors,
              HasSubstr("not a server"));
  EXPECT_THAT(
      motley({"bench", MOTLEY_DEMO_MODEL, "--tune", "--output", "f", "--compute", "f32"}).errors,
      HasSubstr("measures products of bf16"));
}

TEST(BenchTune, PrintsWhatWasChosenBesideTheNextBest) {
  const kernels::MeasuredTimes times{.rows = {1, 8, 16},
                                     .candidates = {{.name = "a", .us = {1.0, 2.0, 9.0}},
                                                    {.name = "b", .us = {3.0, 3.0, {}}},
                                                    {.name = "c", .us = {{}, 5.0, 5.5}}}};
  EXPECT_EQ(threshold_lines({{.up_to = 8, .kernel = "a"}, {.kernel = "c"}}, times),
            "     up to 8  a: 2.0 us at 8, b 3.0\n"
            "        more  c: 5.5 us at 16, a 9.0\n");
}

class TuningOption : public testing::Test {
 protected:
  std::string put(std::string_view text) const {
    const std::filesystem::path path = folder_.path() / "card.json";
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  Outcome score(const std::string& tuning) const {
    const std::filesystem::path lines = folder_.path() / "lines.jsonl";
    std::ofstream(lines) << "{\"token_ids\": [1, 2, 3]}\n";
    return motley({"score", MOTLEY_DEMO_MODEL, "--device", "cpu", "--input", lines.string(),
                   "--output", (folder_.path() / "out.jsonl").string(), "--tuning", tuning});
  }

 private:
  TemporaryFolder folder_;
};

const kernels::Tuning tuning{.card = "NVIDIA H200", .driver = "CUDA 13.0", .date = "2026-11-26"};

TEST_F(TuningOption, OnACpuHasNoEffectButAWarning) {
  const Outcome outcome = score(put(kernels::write_tuning(tuning)));
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
}

TEST_F(TuningOption, ABrokenFileIsRefusedByName) {
  const Outcome outcome = score(put("{\"motley_tuning\": 1}"));
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.errors,
              AllOf(HasSubstr("card.json"), HasSubstr("no key 'card'"), HasSubstr("--tune")));
  EXPECT_THAT(score("/no/such/file.json").errors, HasSubstr("/no/such/file.json"));
}

TEST_F(TuningOption, InspectNamesTheTuning) {
  kernels::Tuning own = tuning;
  // Query, key and value are one product on a GPU.
  own.dense = {{.shape = {.inputs = 192, .outputs = {320}},
                .rows = {{.up_to = 4, .kernel = "gemv_streamed"}},
                .times = {}}};
  const std::string file = put(kernels::write_tuning(own));
  const Outcome tuned = motley({"inspect", MOTLEY_DEMO_MODEL, "--tuning", file});
  EXPECT_EQ(tuned.status, 0) << tuned.errors;
  const Outcome plain = motley({"inspect", MOTLEY_DEMO_MODEL});
  // A build without CUDA has no kernels to select.
  if (plain.output.find("dense kernels on a gpu") == std::string::npos) return;
  EXPECT_THAT(plain.output, HasSubstr("tuning: built-in"));
  EXPECT_THAT(plain.output, HasSubstr("bf16 by gemv_bulk for few rows, cublaslt for many\n"));
  EXPECT_THAT(tuned.output, HasSubstr("bf16 by gemv_bulk or gemv_streamed for few rows"));
  EXPECT_THAT(tuned.output, HasSubstr("card.json, of 2026-11-26 on NVIDIA H200"));
}

}  // namespace
}  // namespace motley::cli
