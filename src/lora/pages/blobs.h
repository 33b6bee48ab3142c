#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "lora/files/adapter.h"
#include "lora/pages/placement.h"
#include "lora/pages/writer.h"

namespace motley::lora {

// Writes all blobs; `bases` are the addresses of the placement's runs.
Result<void> write_blobs(const Adapter& adapter, const Placement& placement,
                         std::span<std::byte* const> bases, PageWriter& writer);

// The FP8 scale of each row: the smallest power of two with which its numbers stay within 448; 1
// for a row of zeros.
std::vector<float> scales_of_rows(const Matrix& matrix);

}  // namespace motley::lora
