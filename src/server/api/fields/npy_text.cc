#include "server/api/fields/npy_text.h"

#include <algorithm>
#include <bit>

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
std::string npy_head(const NpyArray& array) {
  constexpr std::size_t alignment = 64;
  constexpr std::size_t before_text = 10;
  std::string text =
      cat("{'descr': '", array.type, "', 'fortran_order': False, 'shape': (", array.shape, "), }");
  const std::size_t used = before_text + text.size() + 1;
  text.append((alignment - used % alignment) % alignment, ' ');
  text += '\n';
  std::string head("\x93NUMPY\x01\x00", 8);
  head += static_cast<char>(text.size() & 0xFF);
  head += static_cast<char>(text.size() >> 8);
  return head += text;
}

}  // namespace

bool write_npy(std::string& piece, ListPlace& place, const NpyArray& array,
               FunctionRef<void(std::string& text, std::size_t begin, std::size_t end)> append) {
  const std::string head = npy_head(array);
  const std::size_t size = head.size() + array.bytes;
  const std::size_t blocks = (size + block_bytes - 1) / block_bytes;
  if (!place.open) piece += '"';
  place.open = true;
  for (; place.entry < blocks && piece.size() < Reply::piece_bytes; ++place.entry) {
    const std::size_t begin = place.entry * block_bytes;
    const std::size_t end = std::min(begin + block_bytes, size);
    std::string block;
    if (begin < head.size()) block = head.substr(begin, end - begin);
    if (end > head.size())
      append(block, std::max(begin, head.size()) - head.size(), end - head.size());
    append_base64(piece, block);
  }
  if (place.entry < blocks) return false;
  piece += '"';
  place = {};
  return true;
}

bool write_npy(std::string& piece, ListPlace& place, std::span<const float> values,
               std::size_t columns) {
  const std::string_view numbers(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  const NpyArray array{
      .type = "<f4", .shape = cat(values.size() / columns, ", ", columns), .bytes = numbers.size()};
  return write_npy(piece, place, array, [&](std::string& text, std::size_t begin, std::size_t end) {
    text += numbers.substr(begin, end - begin);
  });
}

}  // namespace motley::server
