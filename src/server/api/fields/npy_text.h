#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "server/api/fields/token_lists.h"

namespace motley::server {

// An array as numpy's files have it.
struct NpyArray {
  std::string_view type;  // of a number, in numpy's form: "<f4"
  std::string shape;      // its sizes: "3, 4"
  std::size_t bytes = 0;  // of all numbers, the last index first
};

// Appends the array as a JSON string, or its rest until the piece is long enough: the base64 of the
// file that numpy.save() writes. `append(text, begin, end)` appends these bytes of the numbers.
// True at its end; the position is reset then.
bool write_npy(std::string& piece, ListPlace& place, const NpyArray& array,
               FunctionRef<void(std::string& text, std::size_t begin, std::size_t end)> append);

// The same for a matrix of float32.
bool write_npy(std::string& piece, ListPlace& place, std::span<const float> values,
               std::size_t columns);

}  // namespace motley::server
