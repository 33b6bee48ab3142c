#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "lora/files/adapter.h"
#include "lora/pages/placement.h"
#include "lora/pages/writer.h"

namespace motley::lora {

// Writes all blobs; bases are the addresses of the placement's runs.
Result<void> write_blobs(const Adapter& adapter, const Placement& placement,
                         std::span<std::byte* const> bases, PageWriter& writer);

// The scale of each row in FP8: the smallest power of two by which its numbers reach 448 at most; 1
// for a row of zeros.
std::vector<float> scales_of_rows(const Matrix& matrix);

}  // namespace motley::lora
