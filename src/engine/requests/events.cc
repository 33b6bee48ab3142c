#include "engine/requests/events.h"

#include <utility>

#include "base/system/out_of_memory.h"

namespace motley::engine {

void report_failure(EventSink& sink, const Error& error) {
  Event event = out_of_memory_error();
  static_cast<void>(within_memory([&] { event = error; }));
  sink.take(std::move(event));
}

}  // namespace motley::engine
