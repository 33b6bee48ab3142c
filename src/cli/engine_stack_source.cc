#include "cli/engine_stack_source.h"

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "cli/adapter_text.h"
#include "cli/options/folders/adapter_base.h"
#include "lora/files/load.h"
#include "serving/load_model.h"

namespace motley::cli {
namespace {

// Adapters are read again whenever they come back from disk. Thread-safe.
class FirstTimes {
 public:
  bool is_first(std::string what) {
    const std::lock_guard held(lock_);
    return seen_.insert(std::move(what)).second;
  }

 private:
  std::mutex lock_;
  std::set<std::string> seen_;
};

}  // namespace

serving::EngineStack::Source source_of_folder(const ModelSettings& settings,
                                              const text::ModelText& text, Watchdog* watchdog) {
  const std::vector<std::string> own = text.adapters_with_templates();
  const auto compared = std::make_shared<AdapterText>(
      settings.model, text.config(), std::set<std::string>(own.begin(), own.end()));
  const auto served = std::make_shared<const ServedBase>(settings.model, settings.names());
  const auto named = std::make_shared<FirstTimes>();
  const auto load_adapter = [compared, served, named](
                                const engine::AdapterSpec& spec,
                                const lora::BaseView& base) -> Result<lora::Adapter> {
    MOTLEY_TRY(lora::Adapter adapter, lora::load_adapter(spec.path, spec.load, base));
    compared->warn(spec.name, spec.path);
    if (named->is_first(cat(spec.name, "\n", spec.path.native())))
      served->warn(spec.name, spec.path, spec.load.beneath);
    return adapter;
  };
  const auto load_model = [folder = settings.model](tensor::Device& device,
                                                    serving::EngineSettings& engine,
                                                    const serving::ModelRank& rank) {
    return serving::load_model(folder, engine.compute, device, rank);
  };
  return {.model = load_model, .adapter = load_adapter, .text = &text, .watchdog = watchdog};
}

}  // namespace motley::cli
