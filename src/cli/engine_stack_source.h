#pragma once

#include "base/system/watchdog.h"
#include "cli/options/settings/model_settings.h"
#include "serving/engine_stack.h"
#include "text/model_text.h"

namespace motley::cli {

// The model of the settings' folder, adapters of theirs, and grammars. Warns about adapters whose
// files name another base, or hold other text than the base's. The text must outlive the stack.
serving::EngineStack::Source source_of_folder(const ModelSettings& settings,
                                              const text::ModelText& text,
                                              Watchdog* watchdog = nullptr);

}  // namespace motley::cli
