#include "server/api/fields/npy_text.h"

#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "base/base64.h"
#include "server/api/reply.h"

namespace motley::server {
namespace {

// numpy.save() of arange(6, dtype=uint8).reshape(3, 1, 2), byte for byte but for the padding.
std::string file_of_six() {
  std::string text = "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 1, 2), }";
  text.append(117 - text.size(), ' ');
  return std::string("\x93NUMPY\x01\x00", 8) + std::string("\x76\x00", 2) + text + "\n" +
         std::string("\x00\x01\x02\x03\x04\x05", 6);
}

std::string base64_string(std::string_view bytes) {
  std::string text = "\"";
  append_base64(text, bytes);
  return text += '"';
}

TEST(NpyText, IsTheFileThatNumpyReads) {
  constexpr std::string_view numbers("\x00\x01\x02\x03\x04\x05", 6);
  std::string piece;
  ListPlace place;
  const NpyArray array{.type = "|u1", .shape = "3, 1, 2", .bytes = numbers.size()};
  EXPECT_TRUE(
      write_npy(piece, place, array, [&](std::string& text, std::size_t begin, std::size_t end) {
        text += numbers.substr(begin, end - begin);
      }));
  EXPECT_EQ(piece, base64_string(file_of_six()));
  EXPECT_EQ(file_of_six().size() % 64, 6U);
  EXPECT_EQ(place.entry, 0U);
}

TEST(NpyText, ComesInPieces) {
  std::string numbers(300'000, '\0');
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<char>(i * 7 % 251);
  const NpyArray array{.type = "|u1", .shape = "100000, 1, 3", .bytes = numbers.size()};
  const auto append = [&](std::string& text, std::size_t begin, std::size_t end) {
    text += std::string_view(numbers).substr(begin, end - begin);
  };
  std::string whole;
  ListPlace place;
  int pieces = 0;
  for (bool ended = false; !ended; ++pieces) {
    std::string piece;
    ended = write_npy(piece, place, array, append);
    EXPECT_LE(piece.size(), Reply::piece_bytes + (std::size_t{16} << 10) + 2);
    whole += piece;
  }
  EXPECT_GT(pieces, 4);
  // The head has 128 bytes.
  EXPECT_EQ(whole.size(), 2 + (numbers.size() + 128 + 2) / 3 * 4);
  std::string once;
  append_base64(once, std::string_view(numbers).substr(3 * 4096 - 128, 3 * 4096));
  EXPECT_NE(whole.find(once), std::string::npos);
}

TEST(NpyText, OfAMatrixHasItsRows) {
  const std::array<float, 6> values{};
  std::string piece;
  ListPlace place;
  EXPECT_TRUE(write_npy(piece, place, values, 3));
  std::string head(
      "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
      10 + 59);
  std::string text;
  append_base64(text, std::string_view(head).substr(0, 66));
  EXPECT_EQ(piece.substr(1, text.size()), text);
}

}  // namespace
}  // namespace motley::server
