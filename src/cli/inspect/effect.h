#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/result.h"
#include "cli/inspect/facts.h"
#include "serving/engine_settings.h"
#include "serving/engine_stack.h"
#include "text/model_text.h"

namespace motley::cli {

// Runs a base on a short prompt, with adapters and without (engine/adapter_check.h).
class AdapterTrial {
 public:
  static Result<std::unique_ptr<AdapterTrial>> start(const std::filesystem::path& base,
                                                     const serving::ComputeSettings& compute);

  // Adds the fact "effect" about an adapter that can be loaded.
  void describe(const std::filesystem::path& adapter, Findings& findings);

 private:
  AdapterTrial(text::ModelText text, std::vector<std::int32_t> prompt)
      : text_(std::move(text)), prompt_(std::move(prompt)) {}

  Result<double> effect_of(const std::filesystem::path& adapter);

  text::ModelText text_;
  std::vector<std::int32_t> prompt_;
  std::unique_ptr<serving::EngineStack> stack_;  // last: it uses the text
};

// The same where no trial could be started.
void describe_no_trial(const Error& why, Findings& findings);

}  // namespace motley::cli
