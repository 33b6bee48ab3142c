#include "cli/bench/tune/command.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/cat.h"
#include "base/system/files.h"
#include "cli/bench/columns.h"
#include "cli/bench/random_model.h"
#include "cli/bench/tune/dense_tuner.h"
#include "cli/bench/tune/expert_tuner.h"
#include "cli/options/arguments/option_values.h"
#include "cli/options/folders/named_folder.h"
#include "cli/options/settings/compute_settings.h"
#include "kernels/tuning/candidates.h"
#include "serving/devices.h"
#include "serving/load_model.h"

namespace motley::cli {
namespace {

std::string today() {
  const std::chrono::year_month_day date(
      std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()));
  const auto two = [](unsigned number) { return cat(number < 10 ? "0" : "", number); };
  return cat(static_cast<int>(date.year()), "-", two(static_cast<unsigned>(date.month())), "-",
             two(static_cast<unsigned>(date.day())));
}

Result<std::unique_ptr<tensor::Device>> open_gpu(const serving::ComputeSettings& settings) {
  MOTLEY_TRY_VOID(require_one_rank(settings, "--tune"));
  MOTLEY_TRY(std::unique_ptr<tensor::Device> device, serving::open_device(settings));
  if (device->id().kind == tensor::DeviceKind::cpu)
    return Error(ErrorCode::invalid_argument,
                 "measures the kernels of a GPU, and this would run on a CPU", "--tune",
                 "run it where there is a GPU, with --device cuda");
  return device;
}

Result<std::unique_ptr<model::Model>> load(const Arguments& arguments,
                                           const serving::ComputeSettings& settings,
                                           tensor::Device& device) {
  if (!arguments.has("--shape")) {
    MOTLEY_TRY(const std::filesystem::path folder,
               find_model_folder(arguments.positional(0), arguments.command(),
                                 arguments.environment().hub));
    return serving::load_model(folder, settings, device);
  }
  MOTLEY_TRY(const RandomModelSettings random, read_random_model_settings(arguments));
  MOTLEY_TRY(RandomModel made, make_random_model(random, settings, device));
  return std::move(made.model);
}

std::string title(const kernels::DenseShape& shape) {
  return cat("dense ", name(shape.kind), shape.group > 0 ? cat(" group ", shape.group) : "", ", ",
             join(shape.outputs, " + "), " x ", shape.inputs, "\n");
}
std::string title(const kernels::ExpertLayerShape& shape) {
  return cat("experts of ", shape.bits, " bits, ", shape.experts, " x ", shape.hidden, " x ",
             shape.intermediate, ", ", shape.experts_per_token, " a token",
             shape.adapters ? ", with adapters" : "", "\n");
}

// The candidate's time with so many rows.
std::optional<double> us_of(const kernels::MeasuredTimes& times, const std::string& name,
                            std::size_t at) {
  const auto found =
      std::ranges::find(times.candidates, name, &kernels::MeasuredTimes::Candidate::name);
  return found == times.candidates.end() ? std::nullopt : found->us[at];
}

// The fastest of the other candidates.
const kernels::MeasuredTimes::Candidate* second(const kernels::MeasuredTimes& times,
                                                const std::string& chosen, std::size_t at) {
  const kernels::MeasuredTimes::Candidate* best = nullptr;
  for (const kernels::MeasuredTimes::Candidate& each : times.candidates) {
    if (each.name == chosen || !each.us[at]) continue;
    if (best == nullptr || *each.us[at] < *best->us[at]) best = &each;
  }
  return best;
}

}  // namespace

std::string threshold_lines(const std::vector<kernels::TunedRow>& rows,
                            const kernels::MeasuredTimes& times) {
  if (rows.empty()) return "      always  exact: no other kernel takes such weights\n";
  std::string text;
  std::size_t at = 0;
  for (const kernels::TunedRow& row : rows) {
    // The last number of rows that it was measured with.
    while (at + 1 < times.rows.size() && times.rows[at + 1] <= row.up_to) ++at;
    const bool last = row.up_to == kernels::TunedRow::any;
    text += cat(padded(last ? "more" : cat("up to ", row.up_to), 12), "  ", row.kernel);
    if (const auto us = us_of(times, row.kernel, at)) {
      text += cat(": ", decimals(*us, 1), " us at ", times.rows[at]);
      if (const auto* const other = second(times, row.kernel, at))
        text += cat(", ", other->name, " ", decimals(*other->us[at], 1));
    }
    text += "\n";
  }
  return text;
}

std::vector<OptionSpec> tune_option_specs() {
  return {{"--tune", "", "measure a GPU's kernels on the model's products, for --tuning"},
          {"--output", "F", "with --tune: the file to write"}};
}

Result<void> run_bench_tune(const Arguments& arguments, Output output) {
  const std::string* const path = arguments.value("--output");
  if (path == nullptr)
    return wrong_option("no file to write", "--output", "name one for the measured thresholds");
  MOTLEY_TRY(serving::ComputeSettings settings, read_compute_settings(arguments));
  MOTLEY_TRY_VOID(require_one_replica(settings, "tuning"));
  MOTLEY_TRY_VOID(require_one_rank(settings, "tuning"));
  if (settings.exact.value_or(false))
    return wrong_option("measures products of bf16", "--tune", "leave --compute f32 out");
  MOTLEY_TRY(const std::unique_ptr<tensor::Device> device, open_gpu(settings));
  // Before the work, so that a path that can't be written does not waste it.
  MOTLEY_TRY(AtomicFile file, AtomicFile::create(*path));
  MOTLEY_TRY(const kernels::cuda::Card card, kernels::cuda::card_of(device->id().index));
  MOTLEY_TRY(const std::unique_ptr<model::Model> model, load(arguments, settings, *device));
  MOTLEY_TRY(const std::unique_ptr<GraphTimer> timer,
             GraphTimer::create(*device, model->kernels()));
  const auto print = [&](const auto& tuned) {
    output(title(tuned.shape) + threshold_lines(tuned.rows, tuned.times));
    std::fflush(stdout);
  };
  output(cat(card.name, ", ", card.driver, "\n"));
  kernels::Tuning tuning{.card = card.name,
                         .driver = card.driver,
                         .date = today(),
                         .model = model->config().model_type};
  MOTLEY_TRY(tuning.dense, tune_dense(*model, *device, *timer, print));
  MOTLEY_TRY(tuning.experts, tune_experts(*model, *device, *timer, print));
  MOTLEY_TRY_VOID(file.write(kernels::write_tuning(tuning)));
  MOTLEY_TRY_VOID(file.commit());
  output(cat("written to ", printable(*path), ": use it with --tuning\n"));
  return {};
}

}  // namespace motley::cli
