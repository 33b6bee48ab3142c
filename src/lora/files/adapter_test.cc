#include "lora/files/adapter.h"

#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "lora/pages/test_pool.h"
#include "lora/test_stored.h"

namespace motley::lora {
namespace {

constexpr DType file_types[] = {DType::f32, DType::f16, DType::bf16};

// More numbers than are hashed at once, and no multiple of what is hashed together; every type of
// a file has them all.
Adapter make_long_adapter() {
  Adapter adapter = test::make_adapter(3, 1001, 45, 7);
  for (Matrix& matrix : adapter.matrices) {
    for (float& number : matrix.values) number = std::round(number * 64) / 64;
  }
  adapter.version = hash_content(adapter);
  return adapter;
}

TEST(Matrix, ReadsWhatIsStored) {
  const Adapter adapter = make_long_adapter();
  for (const DType dtype : file_types) {
    const test::StoredAdapter stored = test::stored_as(dtype, adapter);
    for (std::size_t i = 0; i < adapter.matrices.size(); ++i) {
      const Matrix& plain = adapter.matrices[i];
      const Matrix& other = stored.adapter.matrices[i];
      EXPECT_EQ(other.numbers(), plain.values);
      EXPECT_EQ(other.at(2, 1), plain.row(2)[1]);
      EXPECT_EQ(other.rows_between(1, 3).numbers(), plain.rows_between(1, 3).values);
      EXPECT_NE(other.rows_between(1, 3).stored, nullptr);
    }
  }
}

TEST(HashContent, DependsOnNumbersAndNotOnTheirType) {
  const Adapter adapter = make_long_adapter();
  for (const DType dtype : file_types) {
    const test::StoredAdapter stored = test::stored_as(dtype, adapter);
    EXPECT_EQ(hash_content(stored.adapter), adapter.version);
    EXPECT_EQ(hash_finite_content(stored.adapter), adapter.version);
  }
}

TEST(HashContent, ChangesWithNumbersTheirPlacesAndTheShape) {
  const Adapter adapter = make_long_adapter();
  const auto changed = [&](auto&& change) {
    Adapter other = adapter;
    change(other.matrices[0]);
    return hash_content(other);
  };
  const std::size_t count = adapter.matrices[0].values.size();
  for (std::size_t i = 0; i < count; i += 13) {
    EXPECT_NE(changed([&](Matrix& matrix) { matrix.values[i] += 1.0F; }), adapter.version) << i;
    for (const std::size_t other : {std::size_t{1}, std::size_t{8}, std::size_t{1024}}) {
      const std::size_t place = (i + other) % count;
      if (adapter.matrices[0].values[i] == adapter.matrices[0].values[place]) continue;
      const auto swapped = [&](Matrix& matrix) {
        std::swap(matrix.values[i], matrix.values[place]);
      };
      EXPECT_NE(changed(swapped), adapter.version) << i << ", " << place;
    }
  }
  EXPECT_NE(changed([](Matrix& matrix) { std::swap(matrix.rows, matrix.columns); }),
            adapter.version);
}

TEST(HashContent, FindsStoredNumbersThatAreNotFinite) {
  for (const DType dtype : file_types) {
    for (const float number :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
      for (const std::size_t at : {0U, 1023U, 1024U, 3002U}) {
        Adapter adapter = make_long_adapter();
        adapter.matrices[0].values[at] = number;
        const test::StoredAdapter stored = test::stored_as(dtype, adapter);
        EXPECT_FALSE(hash_finite_content(stored.adapter).has_value()) << number << " at " << at;
      }
    }
  }
}

}  // namespace
}  // namespace motley::lora
