#include "base/number_types.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <immintrin.h>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace motley {
namespace {

static_assert(f16::from(1.0F).bits == 0x3C00 && f16{0x3C00}.to_float() == 1.0F);
static_assert(bf16::from(1.0F).bits == 0x3F80 && bf16{0x3F80}.to_float() == 1.0F);
static_assert(f8_e4m3::from(1.0F).bits == 0x38 && f8_e4m3{0x38}.to_float() == 1.0F);
static_assert(f8_e5m2::from(1.0F).bits == 0x3C && f8_e5m2{0x3C}.to_float() == 1.0F);
static_assert(f8_e8m0::from_rounded_up(1.0F).bits == 127 && f8_e8m0{127}.to_float() == 1.0F);
static_assert(f4_e2m1::from(1.0F).bits == 2 && f4_e2m1{2}.to_float() == 1.0F);

enum class Specials { ieee, one_nan, none };

// A format by its definition, and the functions under test.
struct Format {
  std::string name;
  int exponent_bits;
  int mantissa_bits;
  int bias;
  Specials specials;
  float (*decode)(std::uint32_t code);
  std::uint32_t (*encode)(float value);  // beyond the largest value: a special code if there is one
  std::uint32_t (*encode_saturated)(float value);  // null if the format has no choice

  std::uint32_t sign() const { return 1U << (exponent_bits + mantissa_bits); }
  std::uint32_t codes() const { return 2 * sign(); }
  std::uint32_t mantissa_mask() const { return (1U << mantissa_bits) - 1; }
  std::uint32_t infinity() const { return sign() - (1U << mantissa_bits); }
  std::uint32_t quiet() const { return 1U << (mantissa_bits - 1); }

  // The code of the largest finite value.
  std::uint32_t largest() const {
    switch (specials) {
      case Specials::ieee:
        return infinity() - 1;
      case Specials::one_nan:
        return sign() - 2;
      case Specials::none:
        return sign() - 1;
    }
    return 0;
  }

  // The code for values beyond it.
  std::uint32_t overflown() const { return specials == Specials::none ? largest() : largest() + 1; }

  bool is_nan(std::uint32_t code) const {
    const std::uint32_t magnitude = code & (sign() - 1);
    return specials == Specials::ieee      ? magnitude > infinity()
           : specials == Specials::one_nan ? magnitude == sign() - 1
                                           : false;
  }

  // The magnitude of a code by the formula, ignoring special codes.
  double magnitude(std::uint32_t code) const {
    const std::uint32_t exponent = (code & (sign() - 1)) >> mantissa_bits;
    const std::uint32_t mantissa = code & mantissa_mask();
    if (exponent == 0) return std::ldexp(mantissa, 1 - bias - mantissa_bits);
    return std::ldexp(mantissa + (1U << mantissa_bits),
                      static_cast<int>(exponent) - bias - mantissa_bits);
  }

  double value(std::uint32_t code) const {
    const std::uint32_t unsigned_code = code & (sign() - 1);
    double value = magnitude(code);
    if (is_nan(code)) value = std::numeric_limits<double>::quiet_NaN();
    if (specials == Specials::ieee && unsigned_code == infinity()) value = HUGE_VAL;
    return (code & sign()) != 0 ? -value : value;
  }
};

const std::vector<Format>& formats() {
  static const std::vector<Format> all = {
      {"f16", 5, 10, 15, Specials::ieee,
       [](std::uint32_t c) { return f16{static_cast<std::uint16_t>(c)}.to_float(); },
       [](float x) { return std::uint32_t{f16::from(x).bits}; },
       [](float x) { return std::uint32_t{f16::from(x, Overflow::saturate).bits}; }},
      {"bf16", 8, 7, 127, Specials::ieee,
       [](std::uint32_t c) { return bf16{static_cast<std::uint16_t>(c)}.to_float(); },
       [](float x) { return std::uint32_t{bf16::from(x).bits}; }, nullptr},
      {"f8_e4m3", 4, 3, 7, Specials::one_nan,
       [](std::uint32_t c) { return f8_e4m3{static_cast<std::uint8_t>(c)}.to_float(); },
       [](float x) { return std::uint32_t{f8_e4m3::from(x, Overflow::special).bits}; },
       [](float x) { return std::uint32_t{f8_e4m3::from(x).bits}; }},
      {"f8_e5m2", 5, 2, 15, Specials::ieee,
       [](std::uint32_t c) { return f8_e5m2{static_cast<std::uint8_t>(c)}.to_float(); },
       [](float x) { return std::uint32_t{f8_e5m2::from(x, Overflow::special).bits}; },
       [](float x) { return std::uint32_t{f8_e5m2::from(x).bits}; }},
      {"f4_e2m1", 2, 1, 1, Specials::none,
       [](std::uint32_t c) { return f4_e2m1{static_cast<std::uint8_t>(c)}.to_float(); },
       [](float x) { return std::uint32_t{f4_e2m1::from(x).bits}; }, nullptr}};
  return all;
}

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }
float from_bits(std::uint32_t pattern) { return std::bit_cast<float>(pattern); }

// Counts differences and prints the first few, so that a broken format does not print 65,536 lines.
class Differences {
 public:
  explicit Differences(std::string subject) : subject_(std::move(subject)) {}
  ~Differences() { EXPECT_EQ(count_, 0) << subject_ << ": values that differ"; }

  void expect(std::uint32_t wanted, std::uint32_t found, std::uint32_t input) {
    if (wanted == found) return;
    if (++count_ <= 5)
      ADD_FAILURE() << subject_ << std::hex << ": 0x" << input << " should give 0x" << wanted
                    << ", gives 0x" << found;
  }

 private:
  std::string subject_;
  std::int64_t count_ = 0;
};

// The nearest code by search in the table of all finite values, ties to the even code.
class NearestByTable {
 public:
  explicit NearestByTable(const Format& format) : format_(format) {
    for (std::uint32_t code = 0; code <= format.largest(); ++code)
      values_.push_back(format.magnitude(code));
    // The first value beyond the largest; rounding to it overflows.
    values_.push_back(2 * format.magnitude(format.largest()) -
                      format.magnitude(format.largest() - 1));
  }

  std::uint32_t operator()(float value) const {
    const std::uint32_t sign = std::signbit(value) ? format_.sign() : 0;
    const double magnitude = std::fabs(static_cast<double>(value));
    const auto above = std::lower_bound(values_.begin(), values_.end(), magnitude);
    auto code = static_cast<std::uint32_t>(above - values_.begin());
    if (above == values_.end()) return sign | format_.overflown();
    if (*above != magnitude) {
      const double middle = (values_[code - 1] + *above) / 2;
      if (magnitude < middle || (magnitude == middle && code % 2 == 1)) --code;
    }
    return sign | (code > format_.largest() ? format_.overflown() : code);
  }

 private:
  const Format& format_;
  std::vector<double> values_;
};

class NumberTypes : public testing::TestWithParam<std::size_t> {
 protected:
  const Format& format() const { return formats()[GetParam()]; }
};

TEST_P(NumberTypes, EveryCodeWidensToTheValueOfItsDefinition) {
  Differences differences(format().name);
  for (std::uint32_t code = 0; code < format().codes(); ++code) {
    const float found = format().decode(code);
    if (format().is_nan(code)) {
      EXPECT_TRUE(std::isnan(found)) << format().name << " code " << code << " gives " << found;
      EXPECT_EQ(std::signbit(found), (code & format().sign()) != 0) << format().name << code;
      continue;
    }
    const double wanted = format().value(code);
    ASSERT_EQ(static_cast<double>(static_cast<float>(wanted)), wanted) << "a float32 holds it";
    differences.expect(bits(static_cast<float>(wanted)), bits(found), code);
  }
}

TEST_P(NumberTypes, EveryCodeSurvivesWideningAndNarrowing) {
  Differences differences(format().name);
  for (std::uint32_t code = 0; code < format().codes(); ++code) {
    const float value = format().decode(code);
    std::uint32_t wanted = code;
    // A signalling NaN becomes quiet; everything else is unchanged.
    if (format().is_nan(code)) wanted |= format().quiet();
    differences.expect(wanted, format().encode(value), code);
    if (format().encode_saturated != nullptr && std::isfinite(value))
      differences.expect(code, format().encode_saturated(value), code);
  }
}

TEST_P(NumberTypes, RoundsToNearestAndTiesToEven) {
  Differences differences(format().name);
  for (std::uint32_t code = 0; code < format().largest(); ++code) {
    const double low = format().magnitude(code);
    const double high = format().magnitude(code + 1);
    const auto middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(static_cast<double>(middle), (low + high) / 2) << "a float32 holds it";
    const std::uint32_t even = code + code % 2;
    const float below = std::nextafterf(middle, 0.0F);
    const float above = std::nextafterf(middle, HUGE_VALF);
    for (auto* encode : {format().encode, format().encode_saturated}) {
      if (encode == nullptr) continue;
      for (const std::uint32_t sign : {0U, format().sign()}) {
        const float factor = sign == 0 ? 1.0F : -1.0F;
        differences.expect(sign | even, encode(factor * middle), bits(factor * middle));
        differences.expect(sign | code, encode(factor * below), bits(factor * below));
        differences.expect(sign | (code + 1), encode(factor * above), bits(factor * above));
      }
    }
  }
}

TEST_P(NumberTypes, OverflowsHalfAStepBeyondTheLargest) {
  const std::uint32_t largest = format().largest();
  const double step = format().magnitude(largest) - format().magnitude(largest - 1);
  const auto middle = static_cast<float>(format().magnitude(largest) + step / 2);
  const float below = std::nextafterf(middle, 0.0F);
  const float above = std::nextafterf(middle, HUGE_VALF);
  const std::uint32_t tie = largest % 2 == 0 ? largest : format().overflown();
  for (const std::uint32_t sign : {0U, format().sign()}) {
    const float factor = sign == 0 ? 1.0F : -1.0F;
    EXPECT_EQ(format().encode(factor * below), sign | largest);
    EXPECT_EQ(format().encode(factor * middle), sign | tie);
    for (const float beyond : {above, FLT_MAX, HUGE_VALF})
      EXPECT_EQ(format().encode(factor * beyond), sign | format().overflown()) << beyond;
    if (format().encode_saturated == nullptr) continue;
    for (const float beyond : {below, middle, above, FLT_MAX, HUGE_VALF})
      EXPECT_EQ(format().encode_saturated(factor * beyond), sign | largest) << beyond;
  }
}

TEST_P(NumberTypes, NanStaysNanWithItsSignAndUpperPayload) {
  const int shift = 23 - format().mantissa_bits;
  for (const std::uint32_t sign : {0U, 0x80000000U}) {
    for (std::uint32_t payload = 1; payload < 0x00800000U; payload += 4099) {
      const float nan = from_bits(sign | 0x7F800000U | payload);
      std::uint32_t wanted = sign == 0 ? 0 : format().sign();
      switch (format().specials) {
        case Specials::ieee:
          wanted |= format().infinity() | format().quiet() | (payload >> shift);
          break;
        case Specials::one_nan:
          wanted |= format().sign() - 1;
          break;
        case Specials::none:
          wanted = format().largest();
          break;
      }
      ASSERT_EQ(format().encode(nan), wanted) << std::hex << bits(nan);
      if (format().encode_saturated != nullptr) {
        ASSERT_EQ(format().encode_saturated(nan), wanted) << std::hex << bits(nan);
      }
    }
  }
}

TEST_P(NumberTypes, ZerosKeepTheirSign) {
  EXPECT_EQ(format().encode(0.0F), 0U);
  EXPECT_EQ(format().encode(-0.0F), format().sign());
  EXPECT_EQ(bits(format().decode(0)), bits(0.0F));
  EXPECT_EQ(bits(format().decode(format().sign())), bits(-0.0F));
}

TEST_P(NumberTypes, AgreesWithASearchInTheTableOfValues) {
  const NearestByTable nearest(format());
  Differences differences(format().name);
  const auto check = [&](float value) {
    if (std::isnan(value)) return;
    const std::uint32_t wanted = nearest(value);
    differences.expect(wanted, format().encode(value), bits(value));
  };
  // Every exponent, subnormals and infinities included, with mantissas at both ends of the range.
  for (std::uint32_t exponent = 0; exponent < 512; ++exponent) {
    for (std::uint32_t bit = 0; bit < 23; ++bit) {
      check(from_bits((exponent << 23) | (1U << bit)));
      check(from_bits((exponent << 23) | ((1U << bit) - 1)));
      check(from_bits((exponent << 23) | (0x007FFFFFU ^ (1U << bit))));
    }
  }
  std::mt19937 random(1);
  for (int i = 0; i < 500'000; ++i) check(from_bits(static_cast<std::uint32_t>(random())));
  // Most of those are out of range of a narrow format.
  const auto span = static_cast<float>(2 * format().magnitude(format().largest()) / 4294967296.0);
  for (int i = 0; i < 500'000; ++i) check(static_cast<float>(random()) * span);
}

INSTANTIATE_TEST_SUITE_P(Formats, NumberTypes, testing::Range<std::size_t>(0, formats().size()),
                         [](const auto& format) { return formats()[format.param].name; });

TEST(NumberTypesOfGpus, HaveTheValuesOfTheirSpecifications) {
  EXPECT_EQ(f8_e4m3{0x7E}.to_float(), 448.0F);
  EXPECT_EQ(f8_e4m3{0x08}.to_float(), 0x1p-6F);
  EXPECT_EQ(f8_e4m3{0x01}.to_float(), 0x1p-9F);
  EXPECT_EQ(f8_e5m2{0x7B}.to_float(), 57344.0F);
  EXPECT_EQ(f8_e5m2{0x04}.to_float(), 0x1p-14F);
  EXPECT_EQ(f8_e5m2{0x01}.to_float(), 0x1p-16F);
  const float fp4[] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  for (std::uint8_t code = 0; code < 8; ++code) {
    EXPECT_EQ(f4_e2m1{code}.to_float(), fp4[code]);
    EXPECT_EQ(f4_e2m1{static_cast<std::uint8_t>(code | 8)}.to_float(), -fp4[code]);
  }
}

TEST(F4E2m1, IgnoresTheUpperHalfOfItsByte) {
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(bits(f4_e2m1{static_cast<std::uint8_t>(byte)}.to_float()),
              bits(f4_e2m1{static_cast<std::uint8_t>(byte & 15)}.to_float()));
  }
}

TEST(F8E8m0, EveryCodeIsItsPowerOfTwo) {
  for (int code = 0; code < 255; ++code)
    EXPECT_EQ(f8_e8m0{static_cast<std::uint8_t>(code)}.to_float(), std::ldexp(1.0F, code - 127));
  EXPECT_TRUE(std::isnan(f8_e8m0{255}.to_float()));
}

TEST(F8E8m0, RoundsUpAndNeverDown) {
  for (int code = 0; code < 255; ++code) {
    const float power = std::ldexp(1.0F, code - 127);
    for (const float sign : {1.0F, -1.0F}) {
      EXPECT_EQ(f8_e8m0::from_rounded_up(sign * power).bits, code);
      EXPECT_EQ(f8_e8m0::from_rounded_up(sign * std::nextafterf(power, HUGE_VALF)).bits, code + 1);
      EXPECT_EQ(f8_e8m0::from_rounded_up(sign * std::nextafterf(power, 0.0F)).bits, code);
      EXPECT_EQ(f8_e8m0::from_rounded_up(sign * 0.75F * power).bits, code);
    }
  }
}

TEST(F8E8m0, EndsOfTheRange) {
  EXPECT_EQ(f8_e8m0::from_rounded_up(0.0F).bits, 0);
  EXPECT_EQ(f8_e8m0::from_rounded_up(-0.0F).bits, 0);
  EXPECT_EQ(f8_e8m0::from_rounded_up(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(f8_e8m0::from_rounded_up(FLT_MIN).bits, 1);
  for (const float none :
       {FLT_MAX, std::nextafterf(0x1p127F, HUGE_VALF), HUGE_VALF, -HUGE_VALF,
        std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::signaling_NaN()})
    EXPECT_EQ(f8_e8m0::from_rounded_up(none).bits, 255) << none;
}

TEST(F8E8m0, NeverBelowItsInputAndLessThanTwiceIt) {
  std::mt19937 random(2);
  for (int i = 0; i < 200'000; ++i) {
    const float value = std::fabs(from_bits(static_cast<std::uint32_t>(random())));
    if (!(value <= 0x1p127F) || value <= 0x1p-127F) continue;
    const float power = f8_e8m0::from_rounded_up(value).to_float();
    ASSERT_GE(power, value);
    ASSERT_LT(power / 2, value);
  }
}

TEST(NumberTypesDefaults, SaturateEightBitsAndOverflowF16) {
  EXPECT_EQ(f16::from(1e9F).bits, 0x7C00);
  EXPECT_EQ(f8_e4m3::from(1e9F).bits, 0x7E);
  EXPECT_EQ(f8_e5m2::from(1e9F).bits, 0x7B);
  EXPECT_EQ(f4_e2m1::from(1e9F).bits, 0x7);
  EXPECT_EQ(bf16::from(FLT_MAX).bits, 0x7F80);
}

__attribute__((target("f16c"))) std::uint32_t widened_by_hardware(std::uint16_t half) {
  return bits(_cvtsh_ss(half));
}

__attribute__((target("f16c"))) std::uint32_t narrowed_by_hardware(float value) {
  return static_cast<std::uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT));
}

TEST(F16, AgreesWithTheProcessorsConversions) {
  if (!__builtin_cpu_supports("f16c")) return;
  Differences wide("widened");
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const auto half = static_cast<std::uint16_t>(code);
    wide.expect(widened_by_hardware(half), bits(f16{half}.to_float()), code);
  }
  Differences narrow("narrowed");
  const auto check = [&narrow](std::uint32_t pattern) {
    const float value = from_bits(pattern);
    narrow.expect(narrowed_by_hardware(value), f16::from(value).bits, pattern);
  };
  // A regular sample of all 2^32 patterns; then every f16 value with its neighbourhood in float32.
  for (std::uint64_t pattern = 0; pattern < (1ULL << 32); pattern += 1021)
    check(static_cast<std::uint32_t>(pattern));
  for (std::uint32_t upper = 0; upper < (1U << 19); ++upper) {
    for (const std::uint32_t lower : {0U, 1U, 0xFFFU, 0x1000U, 0x1001U, 0x1FFFU})
      check((upper << 13) | lower);
  }
}

}  // namespace
}  // namespace motley
