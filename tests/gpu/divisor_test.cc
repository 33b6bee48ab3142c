#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/dtype.h"
#include "gpu/divisor_kernels.h"

// Codes of inputs are those that a division gives, for scales of any size.
namespace motley::gpu_tests {
namespace {

std::vector<float> scales() {
  using Limits = std::numeric_limits<float>;
  std::vector<float> all{Limits::denorm_min(), Limits::min(), Limits::max(),    Limits::infinity(),
                         Limits::quiet_NaN(),  1e-10F / 448,  1.0F / 448 / 512, 448.0F};
  // Where both sides begin to be multiplied.
  for (const float bound : {0x1p-60F, 0x1p60F, 0x1p-126F, 0x1p126F, 0x1p-80F, 0x1p80F, 1.0F}) {
    all.push_back(bound);
    all.push_back(std::nextafter(bound, 0.0F));
    all.push_back(std::nextafter(bound, Limits::infinity()));
  }
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    const float mantissa = 1.0F + static_cast<float>(random() >> 9) / 8388608.0F;
    all.push_back(std::ldexp(mantissa, static_cast<int>(random() % 270) - 145));
  }
  return all;
}

TEST(Divisor, GivesTheCodesOfADivision) {
  for (const float scale : scales()) {
    for (const float signed_scale : {scale, -scale}) {
      for (const DType type : {DType::f8_e4m3, DType::i8}) {
        const DividedCodes found = compare_divided_codes(type, signed_scale);
        EXPECT_EQ(found.different, 0)
            << name(type) << ", scale " << signed_scale << ": of the number with the bits "
            << found.input << " " << found.code << ", not " << found.wanted;
      }
    }
  }
}

}  // namespace
}  // namespace motley::gpu_tests
