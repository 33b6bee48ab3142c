#pragma once

#include <cstddef>
#include <vector>

#include "lora/files/adapter.h"
#include "tensor/convert.h"

namespace motley::lora::test {

// An adapter whose matrices refer to bytes of a type, as those of a file do.
struct StoredAdapter {
  Adapter adapter;
  std::vector<std::vector<std::byte>> bytes;
};

inline StoredAdapter stored_as(DType dtype, const Adapter& from) {
  StoredAdapter to{.adapter = from, .bytes = {}};
  for (Matrix& matrix : to.adapter.matrices) {
    // A tensor may begin at any byte.
    constexpr std::size_t begin = 1;
    const std::vector<float> numbers = matrix.numbers();
    std::vector<std::byte>& bytes =
        to.bytes.emplace_back(begin + numbers.size() * static_cast<std::size_t>(bits(dtype)) / 8);
    tensor::narrow(dtype, numbers, bytes.data() + begin);
    matrix.values.clear();
    matrix.stored = bytes.data() + begin;
    matrix.dtype = dtype;
  }
  return to;
}

}  // namespace motley::lora::test
