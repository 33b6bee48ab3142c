#include "server/api/fields/npy_text.h"

#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "base/base64.h"
#include "base/cat.h"
#include "server/api/reply.h"

namespace motley::server {
namespace {

// As numpy.save() writes it, byte for byte but for the padding.
std::string file_of(std::string_view type, std::string_view shape, std::string_view bytes) {
  std::string text =
      cat("{'descr': '", type, "', 'fortran_order': False, 'shape': (", shape, "), }");
  text.append(117 - text.size(), ' ');
  return cat(std::string_view("\x93NUMPY\x01\x00\x76\x00", 10), text, "\n", bytes);
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
  EXPECT_EQ(piece, base64_string(file_of("|u1", "3, 1, 2", numbers)));
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
  std::vector<float> values(60'000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = -static_cast<float>(i) / 8;
  std::string whole;
  ListPlace place;
  int pieces = 0;
  for (bool ended = false; !ended; ++pieces) {
    std::string piece;
    ended = write_npy(piece, place, values, 3);
    whole += piece;
  }
  EXPECT_GT(pieces, 2);
  const auto bytes = std::as_bytes(std::span<const float>(values));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  EXPECT_EQ(whole, base64_string(file_of("<f4", "20000, 3", text)));
}

}  // namespace
}  // namespace motley::server
