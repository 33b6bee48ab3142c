#include "cli/inspect/kernels.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/cat.h"
#include "cli/bench/steps/random_adapters.h"
#include "cli/options/settings/compute_settings.h"
#include "runner/runner.h"
#include "serving/devices.h"
#include "serving/load_model.h"

namespace motley::cli {
namespace {

struct StepKind {
  std::int64_t sequences = 1;
  std::int64_t tokens = 1;  // of each sequence; 1: decoding
  bool adapted = false;
};

constexpr std::array<std::int64_t, 3> decoding{1, 8, 64};
constexpr std::int64_t prompt_tokens = 256;

std::string title_of(const StepKind& kind) {
  const std::string what = kind.tokens == 1 ? cat("decode, ", kind.sequences, " row(s)")
                                            : cat("a prompt of ", kind.tokens, " tokens");
  return cat(what, kind.adapted ? ", adapters at every site" : ", no adapters");
}

std::string line_of(const model::TracedLaunch& launch) {
  std::string ops;
  for (const std::string_view op : launch.ops) ops += cat(ops.empty() ? "" : " ", op);
  std::string line = launch.pattern.empty() ? ops : cat(launch.pattern, " = ", ops);
  for (std::size_t i = 0; i < launch.kernels.size(); ++i)
    line += cat(i == 0 ? ": " : ", ", launch.kernels[i]);
  return line;
}

// How often the lines from `begin` on repeat their first `period` lines.
std::size_t count_repeats(std::span<const std::string> lines, std::size_t begin,
                          std::size_t period) {
  std::size_t count = 1;
  const auto block = lines.subspan(begin, period);
  while (begin + (count + 1) * period <= lines.size() &&
         std::ranges::equal(block, lines.subspan(begin + count * period, period)))
    ++count;
  return count;
}

// Prints repeated lines, such as those of layers, once with their number.
std::string fold(std::span<const std::string> lines) {
  constexpr std::size_t max_period = 64;
  std::string text;
  for (std::size_t at = 0; at < lines.size();) {
    std::size_t period = 1;
    std::size_t repeats = 1;
    for (std::size_t each = 1; each <= std::min(max_period, lines.size() - at); ++each) {
      const std::size_t count = count_repeats(lines, at, each);
      if (count > 1 && count * each > repeats * period) {
        period = each;
        repeats = count;
      }
    }
    if (repeats > 1) text += cat("  ", repeats, " times\n");
    for (const std::string& line : lines.subspan(at, period))
      text += cat(repeats > 1 ? "    " : "  ", line, "\n");
    at += repeats * period;
  }
  return text;
}

class Steps {
 public:
  static Result<std::unique_ptr<Steps>> create(const model::Model& model, tensor::Device& device,
                                               const serving::ComputeSettings& settings) {
    auto made = std::make_unique<Steps>();
    RandomAdapters::Options adapters{
        .count = 1, .ranks = {16}, .factors = model.exact() ? DType::f32 : DType::bf16};
    MOTLEY_TRY(made->adapters_, RandomAdapters::create(model, device, adapters));
    const std::int64_t rows = std::max(decoding.back(), prompt_tokens);
    const int rank = made->adapters_->largest_rank();
    MOTLEY_TRY(made->runner_,
               runner::Runner::create(model, device,
                                      {.max_rows = rows,
                                       .max_sequences = decoding.back(),
                                       .max_tokens = rows,
                                       .pages = decoding.back() + runner::KvMemory::pages_for(rows),
                                       .state_slots = model.keeps_states() ? decoding.back() : 0,
                                       .logit_rows = decoding.back(),
                                       .adapters = &made->adapters_->pool(),
                                       .adapter_rank = rank,
                                       .mix_rank = rank,
                                       .graphs = settings.graphs}));
    return made;
  }

  Result<std::string> describe(const StepKind& kind) {
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(kind.tokens), 1);
    runner::ConsecutivePages pages(runner_->kv());
    std::vector<std::vector<std::int32_t>> lists;
    std::vector<runner::Chunk> chunks;
    for (std::int64_t i = 0; i < kind.sequences; ++i) lists.push_back(pages.take(kind.tokens));
    for (const std::vector<std::int32_t>& list : lists) {
      chunks.push_back(
          {.pages = list,
           .length = 0,
           .tokens = tokens,
           .state = {.slot = static_cast<std::int32_t>(chunks.size()), .certain = kind.tokens}});
      if (kind.adapted) chunks.back().mix = adapters_->mixes()[0];
    }
    // Libraries initialise things at their first call, which is not possible during capture.
    MOTLEY_TRY_VOID(runner_->step(chunks, [](const auto&, const auto&) { return Result<void>(); }));
    MOTLEY_TRY(const runner::Runner::Trace trace, runner_->trace(chunks));
    std::vector<std::string> lines;
    std::size_t kernels = 0;
    for (const model::TracedLaunch& launch : trace.launches) {
      if (launch.ops.front() == "begin" && launch.kernels.empty()) continue;
      lines.push_back(line_of(launch));
      kernels += launch.kernels.size();
    }
    std::string counts = cat(lines.size(), " launches of ops");
    if (trace.captured > 0) counts = cat(kernels, " kernels, ", trace.captured, " in its graph");
    return cat(title_of(kind), ": ", counts, "\n", fold(lines));
  }

 private:
  std::unique_ptr<RandomAdapters> adapters_;
  std::unique_ptr<runner::Runner> runner_;
};

}  // namespace

Result<std::string> describe_kernels(const std::filesystem::path& folder,
                                     const serving::ComputeSettings& settings) {
  MOTLEY_TRY_VOID(require_one_rank(settings, "--kernels"));
  MOTLEY_TRY(const std::unique_ptr<tensor::Device> device, serving::open_device(settings));
  MOTLEY_TRY(const std::unique_ptr<model::Model> model,
             serving::load_model(folder, settings, *device));
  MOTLEY_TRY(const std::unique_ptr<Steps> steps, Steps::create(*model, *device, settings));
  std::string text = cat(printable(folder.string()), " on ", device->description(), "\n");
  for (const bool adapted : {false, true}) {
    for (const std::int64_t rows : decoding) {
      MOTLEY_TRY(const std::string step, steps->describe({.sequences = rows, .adapted = adapted}));
      text += step;
    }
    MOTLEY_TRY(const std::string prompt,
               steps->describe({.tokens = prompt_tokens, .adapted = adapted}));
    text += prompt;
  }
  return text;
}

}  // namespace motley::cli
