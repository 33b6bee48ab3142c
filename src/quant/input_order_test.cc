#include "quant/input_order.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace motley::quant {
namespace {

TEST(InputOrder, IsByGroupAndThenAsItStands) {
  EXPECT_EQ(order_by_group({1, 0, 2, 1, 0}), (std::vector<std::int32_t>{1, 4, 0, 3, 2}));
}

std::vector<unsigned> codes_of(const std::vector<std::byte>& rows, std::size_t columns, int bits) {
  const std::size_t row_bytes = (columns * static_cast<std::size_t>(bits) + 7) / 8;
  std::vector<unsigned> codes;
  for (std::size_t first = 0; first < rows.size(); first += row_bytes) {
    for (std::size_t k = 0; k < columns; ++k) {
      const std::size_t at = k * static_cast<std::size_t>(bits);
      const auto byte = static_cast<unsigned>(rows[first + at / 8]);
      codes.push_back(byte >> at % 8 & ((1U << bits) - 1));
    }
  }
  return codes;
}

TEST(InputOrder, SortsRowsOfAnyNumberAndWidthInPlaceToo) {
  std::mt19937 random(1);
  for (const int bits : {4, 8}) {
    for (const std::int64_t columns : {1, 2, 7, 8, 31, 33, 64, 200}) {
      for (const std::int64_t rows : {1, 15, 16, 37}) {
        std::vector<std::byte> from(static_cast<std::size_t>(rows * ((columns * bits + 7) / 8)));
        for (std::byte& byte : from) byte = static_cast<std::byte>(random());
        std::vector<std::int32_t> order(static_cast<std::size_t>(columns));
        std::iota(order.begin(), order.end(), 0);
        std::ranges::shuffle(order, random);
        std::vector<unsigned> wanted;
        const auto width = static_cast<std::size_t>(columns);
        const std::vector<unsigned> codes = codes_of(from, width, bits);
        for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
          for (const std::int32_t input : order)
            wanted.push_back(codes[row * width + static_cast<std::size_t>(input)]);
        }
        const CodeRows all{.rows = rows, .columns = columns, .bits = bits};
        std::vector<std::byte> to(from.size());
        take_columns(all, order, from.data(), to.data());
        EXPECT_EQ(codes_of(to, width, bits), wanted) << bits << " bits, " << rows << "x" << columns;
        take_columns(all, order, from.data(), from.data());
        EXPECT_EQ(from, to) << "in place, " << bits << " bits, " << rows << "x" << columns;
      }
    }
  }
}

TEST(InputOrder, TakesSomeColumnsAndFillers) {
  std::mt19937 random(2);
  const std::vector<std::int32_t> columns{5, no_column, 0, 32, no_column, 7, 5, no_column, 31};
  for (const int bits : {4, 8}) {
    for (const std::int64_t rows : {1, 16, 35}) {
      const std::size_t width = 33;
      std::vector<std::byte> from(static_cast<std::size_t>(rows) *
                                  ((width * static_cast<std::size_t>(bits) + 7) / 8));
      for (std::byte& byte : from) byte = static_cast<std::byte>(random());
      const std::vector<unsigned> codes = codes_of(from, width, bits);
      std::vector<unsigned> wanted;
      for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
        for (const std::int32_t column : columns)
          wanted.push_back(
              column == no_column ? 8 : codes[row * width + static_cast<std::size_t>(column)]);
      }
      std::vector<std::byte> to(static_cast<std::size_t>(rows) *
                                ((columns.size() * static_cast<std::size_t>(bits) + 7) / 8));
      take_columns({.rows = rows, .columns = std::int64_t{width}, .bits = bits}, columns,
                   from.data(), to.data(), 8);
      EXPECT_EQ(codes_of(to, columns.size(), bits), wanted) << bits << " bits, " << rows;
    }
  }
}

}  // namespace
}  // namespace motley::quant
