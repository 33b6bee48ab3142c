#include "engine/adapter_log.h"

#include <optional>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "base/system/out_of_memory.h"

namespace motley::engine {
namespace {

// A name that is taken or busy is no fault of the files: controllers ask for loads again and again.
void log_failure(const std::string& name, const std::string& path, const Error& error) {
  const bool of_name = error.code() == ErrorCode::invalid_argument ||
                       error.code() == ErrorCode::busy || error.code() == ErrorCode::conflict ||
                       error.code() == ErrorCode::unavailable;
  log::write(of_name ? log::Level::info : log::Level::warning, "adapter.failed",
             {{"adapter", name}, {"path", path}, {"reason", error.message()}});
}

void log_change(std::string_view event, const std::optional<AdapterInfo>& adapter) {
  if (!adapter) return;
  log::info(event, {{"adapter", adapter->name},
                    {"path", adapter->path},
                    {"version", adapter->version},
                    {"rank", adapter->rank},
                    {"pages", adapter->pages},
                    {"pinned", adapter->pinned}});
}

}  // namespace

void load_and_log(Engine& engine, const AdapterSpec& spec, bool replace, Engine::Done done) {
  const bool replaces = engine.adapter(spec.name).has_value();
  engine.load_adapter(spec, replace,
                      [&engine, name = spec.name, path = spec.path.string(), replaces,
                       answer = std::move(done)](Result<void> result) {
                        // Without memory for the line there is none.
                        std::ignore = within_memory([&] {
                          if (result.ok())
                            log_change(replaces ? "adapter.replaced" : "adapter.loaded",
                                       engine.adapter(name));
                          else
                            log_failure(name, path, result.error());
                        });
                        answer(std::move(result));
                      });
}

void unload_and_log(Engine& engine, const std::string& name, Engine::Done done) {
  engine.unload_adapter(
      name, [adapter = engine.adapter(name), answer = std::move(done)](Result<void> result) {
        if (result.ok()) log_change("adapter.unloaded", adapter);
        answer(std::move(result));
      });
}

}  // namespace motley::engine
