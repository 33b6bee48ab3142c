#pragma once

#include <string>

#include "engine/engine.h"

namespace motley::engine {

// Engine::load_adapter and Engine::unload_adapter, with a line of the log for the outcome:
// adapter.loaded, adapter.replaced, adapter.unloaded or adapter.failed, with its path and version.
// The engine must outlive the call of `done`.
void load_and_log(Engine& engine, const AdapterSpec& spec, bool replace, Engine::Done done);
void unload_and_log(Engine& engine, const std::string& name, Engine::Done done);

}  // namespace motley::engine
