#pragma once

#include "server/metrics/page.h"

namespace motley::server {

// What engines say of adapters: their memory, loads and requests. Only a bounded number of adapters
// has samples of its own, however many there are.
void write_adapters(EngineMetrics& page);

}  // namespace motley::server
