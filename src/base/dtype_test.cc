#include "base/dtype.h"

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace motley {
namespace {

std::vector<DType> all() {
  std::vector<DType> dtypes;
  for (int i = 0; i < dtype_count; ++i) dtypes.push_back(static_cast<DType>(i));
  return dtypes;
}

TEST(DType, EveryNameIsFoundAgain) {
  std::set<std::string> names;
  for (const DType dtype : all()) {
    EXPECT_EQ(dtype_from_name(name(dtype)), dtype) << name(dtype);
    names.emplace(name(dtype));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(dtype_count));
}

TEST(DType, HasTheNamesAndWidthsOfSafetensors) {
  struct Row {
    DType dtype;
    std::string_view name;
    int bits;
  };
  const Row rows[] = {
      {DType::f64, "F64", 64},        {DType::f32, "F32", 32},
      {DType::f16, "F16", 16},        {DType::bf16, "BF16", 16},
      {DType::f8_e4m3, "F8_E4M3", 8}, {DType::f8_e5m2, "F8_E5M2", 8},
      {DType::f8_e8m0, "F8_E8M0", 8}, {DType::f4, "F4", 4},
      {DType::i64, "I64", 64},        {DType::i32, "I32", 32},
      {DType::i16, "I16", 16},        {DType::i8, "I8", 8},
      {DType::u64, "U64", 64},        {DType::u32, "U32", 32},
      {DType::u16, "U16", 16},        {DType::u8, "U8", 8},
      {DType::boolean, "BOOL", 8},
  };
  EXPECT_EQ(std::size(rows), static_cast<std::size_t>(dtype_count));
  for (const Row& row : rows) {
    EXPECT_EQ(name(row.dtype), row.name);
    EXPECT_EQ(bits(row.dtype), row.bits) << row.name;
  }
}

TEST(DType, RefusesNamesThatAreNotExact) {
  for (const std::string_view wrong : {"", "f32", "F32 ", "FLOAT", "BF1", "F8_E4M3FN", "C64"})
    EXPECT_EQ(dtype_from_name(wrong), std::nullopt) << wrong;
}

TEST(DType, CountsBytes) {
  for (const DType dtype : all()) {
    EXPECT_EQ(bytes_of(dtype, 0), 0) << name(dtype);
    EXPECT_EQ(bytes_of(dtype, 24), 24 * bits(dtype) / 8) << name(dtype);
  }
  EXPECT_EQ(bytes_of(DType::f4, 2), 1);
  EXPECT_EQ(bytes_of(DType::bf16, 3), 6);
}

TEST(DType, RefusesElementsThatEndInsideAByte) {
  EXPECT_EQ(bytes_of(DType::f4, 1), std::nullopt);
  EXPECT_EQ(bytes_of(DType::f4, 9), std::nullopt);
}

TEST(DType, RefusesNegativeCounts) {
  for (const DType dtype : all()) {
    EXPECT_EQ(bytes_of(dtype, -1), std::nullopt) << name(dtype);
    EXPECT_EQ(bytes_of(dtype, -8), std::nullopt) << name(dtype);
    EXPECT_EQ(bytes_of(dtype, std::numeric_limits<std::int64_t>::min()), std::nullopt);
  }
}

TEST(DType, RefusesExactlyTheBytesThatOverflow63Bits) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(bytes_of(DType::u8, most), most);
  EXPECT_EQ(bytes_of(DType::f4, most - 1), (most - 1) / 2);
  for (const std::int64_t size : {2, 4, 8}) {
    const DType dtype = size == 2 ? DType::bf16 : size == 4 ? DType::f32 : DType::i64;
    EXPECT_EQ(bytes_of(dtype, most / size), most / size * size) << name(dtype);
    EXPECT_EQ(bytes_of(dtype, most / size + 1), std::nullopt) << name(dtype);
    EXPECT_EQ(bytes_of(dtype, most), std::nullopt) << name(dtype);
  }
}

}  // namespace
}  // namespace motley
