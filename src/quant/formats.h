#pragma once

#include <span>
#include <string_view>

#include "quant/weight.h"

namespace motley::quant {

// Whether products read weights of the format on a CPU, at any size.
bool is_known(const Format& format);

struct KnownFormat {
  Format format;
  std::string_view files;  // that hold it, for `inspect --supported`; empty: for tests alone
};

// One of each kind that checkpoints hold: what tests walk over, and what is told of what works.
std::span<const KnownFormat> known_formats();

}  // namespace motley::quant
