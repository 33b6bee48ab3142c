#include "cli/inspect/effect.h"

#include <future>
#include <utility>

#include "base/cat.h"
#include "base/log.h"
#include "cli/check_prompt.h"
#include "cli/engine_stack_source.h"
#include "engine/adapter_check.h"
#include "serving/devices.h"

namespace motley::cli {
namespace {

constexpr std::string_view key = "effect";
constexpr const char* adapter_name = "adapter";
// More than the prompt needs.
constexpr std::int64_t rows = 64;
constexpr std::uint64_t kv_bytes = std::uint64_t{256} << 20;

// The report is about the adapter: what a start logs is left out, but for warnings.
void log_warnings_only() {
  log::Settings settings = log::settings();
  if (settings.level != log::Level::info) return;
  settings.level = log::Level::warning;
  log::configure(std::move(settings));
}

}  // namespace

Result<std::unique_ptr<AdapterTrial>> AdapterTrial::start(const std::filesystem::path& base,
                                                          const serving::ComputeSettings& compute) {
  log_warnings_only();
  ModelSettings settings{.model = base, .name = "base"};
  MOTLEY_TRY(settings.engine.compute, serving::choose_devices(compute));
  settings.engine.compute.graphs = false;
  settings.engine.memory.max_batch_tokens = rows;
  settings.engine.memory.kv_memory = kv_bytes;
  MOTLEY_TRY(text::ModelText text, load_text(settings));
  MOTLEY_TRY(std::vector<std::int32_t> prompt, check_prompt(text.tokenizer()));
  std::unique_ptr<AdapterTrial> trial(new AdapterTrial(std::move(text), std::move(prompt)));
  MOTLEY_TRY(trial->stack_,
             serving::EngineStack::load(settings.engine, source_of_folder(settings, trial->text_)));
  return trial;
}

Result<double> AdapterTrial::effect_of(const std::filesystem::path& adapter) {
  engine::Engine& engine = stack_->engine();
  // Shared, because the engine may still hold it when the value has arrived.
  const auto loaded = std::make_shared<std::promise<Result<void>>>();
  std::future<Result<void>> answer = loaded->get_future();
  engine.load_adapter({.name = adapter_name, .path = adapter}, true,
                      [loaded](Result<void> result) { loaded->set_value(std::move(result)); });
  MOTLEY_TRY_VOID(answer.get());
  return engine::effect_of_adapter(engine, prompt_, adapter_name);
}

void AdapterTrial::describe(const std::filesystem::path& adapter, Findings& findings) {
  const Result<double> effect = effect_of(adapter);
  if (!effect.ok()) return describe_no_trial(effect.error(), findings);
  if (*effect == 0)
    return findings.add(std::string(key), json::Value(0),
                        "none: a short prompt has the same log-probabilities with it and without");
  findings.add(std::string(key), json::Value(*effect),
               cat("log-probabilities of a short prompt move by up to ", *effect));
}

void describe_no_trial(const Error& why, Findings& findings) {
  findings.add(std::string(key), json::Value(nullptr), cat("not tried: ", why.message()));
}

}  // namespace motley::cli
