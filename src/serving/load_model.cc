#include "serving/load_model.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "base/cat.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/system/clock.h"
#include "base/system/cpu.h"
#include "kernels/tuning/candidates.h"
#include "model/dense_groups.h"

namespace motley::serving {

std::string tuning_name(const kernels::Tuning* tuning) {
  if (tuning == nullptr) return "built-in";
  return cat(tuning->file, ", of ", printable(tuning->date), " on ", printable(tuning->card));
}

void check_tuning_suits(const model::Model& model, const tensor::Device& device) {
  if (model.tuning() == nullptr) return;
  const kernels::Tuning& tuning = *model.tuning();
  std::vector<std::string> reasons;
  if (device.id().kind == tensor::DeviceKind::cpu) {
    reasons.emplace_back("it is for a GPU, and has no effect here");
  } else {
    const auto card = kernels::cuda::card_of(device.id().index);
    if (card.ok() && card->name != tuning.card)
      reasons.push_back(
          cat("it was made on ", printable(tuning.card), ", and this is ", card->name));
    const std::string missing = model::not_tuned(model, tuning);
    if (!missing.empty()) reasons.push_back(cat("it has no rows for ", missing, " of this model"));
  }
  if (reasons.empty()) return;
  log::warning("tuning.other", {{"file", tuning.file}, {"reason", join(reasons, "; ")}});
}

bool likes_float32(const tensor::Device& device) {
  return device.id().kind == tensor::DeviceKind::cpu && !cpu_features().avx512_bf16;
}

Result<std::unique_ptr<model::Model>> load_model(const std::filesystem::path& folder,
                                                 const ComputeSettings& settings,
                                                 tensor::Device& device, const ModelRank& rank) {
  std::optional<motley::Progress> progress;
  std::uint64_t bytes = 0;
  const auto report = [&](std::uint64_t done, std::uint64_t total) {
    bytes = total;
    if (!progress)
      progress.emplace(
          motley::Progress::to_stderr("loading the model", total, motley::Progress::Unit::bytes));
    progress->set(done);
  };
  const SteadyClock clock;
  const TimePoint start = clock.now();
  auto model = model::Model::load(folder, device,
                                  {.exact = settings.exact.value_or(likes_float32(device)),
                                   .batch_invariant = settings.batch_invariant,
                                   .experts_backend = settings.experts_backend,
                                   .factors = settings.factors,
                                   .kv_codes = settings.kv_codes,
                                   .copy_weights = settings.copy_weights,
                                   .exact_inputs = settings.exact_inputs,
                                   .fusion = settings.fusion,
                                   .ranks = rank.ranks,
                                   .expert_groups = settings.expert_groups,
                                   .checkpoint = rank.checkpoint,
                                   .tuning = settings.tuning,
                                   .progress = report});
  if (model.ok() && progress) progress->finish();
  if (model.ok()) {
    check_tuning_suits(**model, device);
    log::info("model.loaded", {{"file_bytes", bytes},
                               {"files", settings.copy_weights ? "copied" : "mapped"},
                               {"seconds", seconds(clock.now() - start)}});
  }
  return model;
}

}  // namespace motley::serving
