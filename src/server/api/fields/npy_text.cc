#include "server/api/fields/npy_text.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "base/base64.h"
#include "base/cat.h"
#include "server/api/reply.h"

namespace motley::server {
namespace {

static_assert(std::endian::native == std::endian::little, "the numbers are written as they are");

// Bytes that are encoded at once; groups of base64 end with them.
constexpr std::size_t block_bytes = 3UL * 4096;

// Version 1.0 of the format: a magic string, the length of a text, and the text, which is padded
// so that the numbers begin at a multiple of 64.
std::string npy_head(std::size_t rows, std::size_t columns) {
  constexpr std::size_t alignment = 64;
  constexpr std::size_t before_text = 10;
  std::string text =
      cat("{'descr': '<f4', 'fortran_order': False, 'shape': (", rows, ", ", columns, "), }");
  const std::size_t used = before_text + text.size() + 1;
  text.append((alignment - used % alignment) % alignment, ' ');
  text += '\n';
  std::string head("\x93NUMPY\x01\x00", 8);
  head += static_cast<char>(text.size() & 0xFF);
  head += static_cast<char>(text.size() >> 8);
  return head += text;
}

// Bytes [begin, end) of two texts, one after the other.
std::string slice(std::string_view first, std::string_view second, std::size_t begin,
                  std::size_t end) {
  std::string part;
  if (begin < first.size()) part += first.substr(begin, end - begin);
  if (end > first.size()) {
    const std::size_t from = std::max(begin, first.size()) - first.size();
    part += second.substr(from, end - first.size() - from);
  }
  return part;
}

}  // namespace

bool write_npy(std::string& piece, ListPlace& place, std::span<const float> values,
               std::size_t columns) {
  const std::string head = npy_head(values.size() / columns, columns);
  const std::string_view numbers(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  const std::size_t size = head.size() + numbers.size();
  const std::size_t blocks = (size + block_bytes - 1) / block_bytes;
  if (!place.open) piece += '"';
  place.open = true;
  for (; place.entry < blocks && piece.size() < Reply::piece_bytes; ++place.entry) {
    const std::size_t begin = place.entry * block_bytes;
    append_base64(piece, slice(head, numbers, begin, std::min(begin + block_bytes, size)));
  }
  if (place.entry < blocks) return false;
  piece += '"';
  place = {};
  return true;
}

}  // namespace motley::server
