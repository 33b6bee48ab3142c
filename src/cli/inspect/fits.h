#pragma once

#include <cstdint>

#include "cli/inspect/facts.h"
#include "model/model.h"

namespace motley::cli {

// How many sequences and tokens `serve` would hold at once next to weights of so many bytes, on
// GPUs of usual sizes and with its default options.
void add_fits(const model::Model& model, std::int64_t weight_bytes, Findings& findings);

// How many bytes of pushed adapters' files `serve` would hold on this machine.
void add_push_memory(Findings& findings);

}  // namespace motley::cli
