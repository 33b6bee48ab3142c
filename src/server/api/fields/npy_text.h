#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "server/api/fields/token_lists.h"

namespace motley::server {

// Appends a matrix of float32 as a JSON string, or its rest until the piece is long enough: the
// base64 of the file that numpy.save() writes. True at its end; the position is reset then.
bool write_npy(std::string& piece, ListPlace& place, std::span<const float> values,
               std::size_t columns);

}  // namespace motley::server
