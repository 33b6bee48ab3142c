#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "base/number_types.h"
#include "quant/weight.h"

// Weights of any format, packed by its definition and not by the code under test, for tests.
namespace motley::quant {

struct TestWeight {
  Weight weight;
  std::vector<double> meaning;  // [out, in]
};

class TestPacker {
 public:
  TestPacker(const Format& format, TrueSize size, tensor::Allocator& allocator,
             std::mt19937& random)
      : allocator_(allocator), random_(random), parts_{.format = format, .size = size} {}

  // The order of another weight's columns, where the format has one.
  TestPacker& in_order_of(const Weight& other) {
    parts_.input_order = other.input_order();
    return *this;
  }
  // More columns than inputs, where the format has an order: those that mean zero.
  TestPacker& fill_up_to(std::int64_t columns) {
    parts_.columns = columns;
    return *this;
  }
  // Numbers around `wanted` [out, in].
  TestWeight pack(const std::vector<float>& wanted) {
    const Format& format = parts_.format;
    if (format.scales != Format::Scales::none) choose_scales(wanted);
    if (format.input_order) choose_order();
    if (format.inputs == kernels::InputRounding::Scales::fixed) {
      parts_.input_scale = format.input_type == DType::i8 ? 0.03F : 0.01F;
      parts_.input_zero = format.input_type == DType::i8 ? 3 : 0;
    }
    const TrueSize size = parts_.size;
    const std::int64_t row_bytes = (columns() * format.bits + 7) / 8;
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(size.out * row_bytes));
    std::vector<double> meaning(static_cast<std::size_t>(size.out * size.in));
    for (std::int64_t o = 0; o < size.out; ++o) {
      std::uint8_t* const row = codes.data() + o * row_bytes;
      for (std::int64_t k = 0; k < columns(); ++k) {
        if (is_filler(k)) {
          put(0, o, k, row);
          continue;
        }
        const auto input = static_cast<std::size_t>(o * size.in + input_of(k));
        meaning[input] = put(wanted[input], o, k, row);
      }
    }
    parts_.data = keep(codes.data(), codes.size());
    return {Weight(std::move(parts_)), std::move(meaning)};
  }

 private:
  std::int64_t columns() const { return parts_.columns > 0 ? parts_.columns : parts_.size.in; }
  bool is_filler(std::int64_t k) const {
    return !fillers_.empty() && fillers_[static_cast<std::size_t>(k)];
  }
  std::int64_t block_rows() const {
    return parts_.format.scales == Format::Scales::tensor ? parts_.size.out
                                                          : parts_.format.block_rows;
  }
  std::int64_t block_columns() const {
    const Format::Scales scales = parts_.format.scales;
    const bool whole = scales == Format::Scales::tensor || scales == Format::Scales::channel;
    return whole ? columns() : parts_.format.block_columns;
  }
  std::int64_t groups() const { return (columns() + block_columns() - 1) / block_columns(); }
  std::int64_t input_of(std::int64_t k) const {
    return order_.empty() ? k : order_[static_cast<std::size_t>(k)];
  }
  std::size_t place(std::int64_t o, std::int64_t k) const {
    return static_cast<std::size_t>(o / block_rows() * groups() + k / block_columns());
  }

  // Scales of powers of two and of none, apart by up to 4: a wrong one shows.
  void choose_scales(const std::vector<float>& wanted) {
    const Format& format = parts_.format;
    const auto count =
        static_cast<std::size_t>((parts_.size.out + block_rows() - 1) / block_rows() * groups());
    float largest = 1e-20F;
    for (const float number : wanted) largest = std::max(largest, std::abs(number));
    const float codes = format.element == DType::f8_e4m3 ? 100.0F
                        : format.element == DType::f4    ? 4.0F
                        : format.bits == 4               ? 7.0F
                                                         : 100.0F;
    if (format.global_scale) parts_.scale_factor = largest / codes / 64;
    std::vector<std::byte> stored(count * static_cast<std::size_t>(bits(format.scale_type)) / 8);
    for (std::size_t i = 0; i < count; ++i) {
      const double spread = std::uniform_real_distribution<double>(0.5, 2)(random_);
      const auto scale =
          static_cast<float>(spread * static_cast<double>(largest / codes / parts_.scale_factor));
      scales_.push_back(store_scale(scale, stored.data(), i) * parts_.scale_factor);
    }
    parts_.scales = keep(stored.data(), stored.size());
    std::vector<std::uint8_t> zeros(count);
    for (std::uint8_t& zero : zeros) {
      const int middle = format.bits == 4 ? 8 : 128;
      zero = static_cast<std::uint8_t>(middle + std::uniform_int_distribution(-3, 3)(random_));
    }
    if (format.zero_points) {
      zeros_ = zeros;
      parts_.zero_points = reinterpret_cast<const std::uint8_t*>(keep(zeros.data(), zeros.size()));
    }
  }

  void choose_order() {
    if (parts_.input_order == nullptr) {
      const auto inputs = static_cast<std::size_t>(parts_.size.in);
      std::vector<std::size_t> places(static_cast<std::size_t>(columns()));
      std::iota(places.begin(), places.end(), 0);
      std::ranges::shuffle(places, random_);
      std::vector<std::int32_t> order(places.size());
      for (std::size_t k = 0; k < order.size(); ++k) {
        order[k] = static_cast<std::int32_t>(places[k] % inputs);
        fillers_.push_back(places[k] >= inputs);
      }
      parts_.input_order = std::make_shared<const std::vector<std::int32_t>>(std::move(order));
    }
    order_ = *parts_.input_order;
  }

  // The scale as its type holds it.
  float store_scale(float scale, std::byte* stored, std::size_t index) const {
    const auto write = [&]<class Number>(Number number) {
      std::memcpy(stored + index * sizeof number, &number, sizeof number);
    };
    switch (parts_.format.scale_type) {
      case DType::f16: {
        const f16 number = f16::from(scale);
        write(number);
        return number.to_float();
      }
      case DType::bf16: {
        const bf16 number = bf16::from(scale);
        write(number);
        return number.to_float();
      }
      case DType::f8_e4m3: {
        const f8_e4m3 number = f8_e4m3::from(scale);
        write(number);
        return number.to_float();
      }
      case DType::f8_e8m0: {
        const f8_e8m0 number = f8_e8m0::from_rounded_up(scale);
        write(number);
        return number.to_float();
      }
      default:
        write(scale);
        return scale;
    }
  }

  // Writes number k of a row; returns what that means.
  double put(float wanted, std::int64_t o, std::int64_t k, std::uint8_t* row) const {
    const Format& format = parts_.format;
    const bool scaled = format.scales != Format::Scales::none;
    const float scale = scaled ? scales_[place(o, k)] : 1;
    const float code = wanted / scale;
    const auto write = [&]<class Number>(Number number) {
      std::memcpy(row + static_cast<std::size_t>(k) * sizeof number, &number, sizeof number);
    };
    const auto write_half = [&](unsigned half) {
      row[k / 2] = static_cast<std::uint8_t>(row[k / 2] | half << (k % 2 * 4));
    };
    const auto meant = [&](float number) {
      return static_cast<double>(number) * static_cast<double>(scale);
    };
    switch (format.element) {
      case DType::f16:
        write(f16::from(code));
        return meant(f16::from(code).to_float());
      case DType::bf16:
        write(bf16::from(code));
        return meant(bf16::from(code).to_float());
      case DType::f8_e4m3:
        write(f8_e4m3::from(code));
        return meant(f8_e4m3::from(code).to_float());
      case DType::f4: {
        const f4_e2m1 number = f4_e2m1::from(code);
        write_half(number.bits);
        return meant(number.to_float());
      }
      case DType::i8: {
        const long middle = format.bits == 4 ? 8 : 128;
        const long zero = zeros_.empty() ? middle : long{zeros_[place(o, k)]};
        const long stored = std::clamp(std::lround(code) + zero, 0L, 2 * middle - 1);
        if (format.bits == 4) write_half(static_cast<unsigned>(stored));
        if (format.bits == 8) write(static_cast<std::int8_t>(stored - 128));
        return meant(static_cast<float>(stored - zero));
      }
      default:
        write(code);
        return meant(code);
    }
  }

  const std::byte* keep(const void* from, std::size_t bytes) {
    tensor::Buffer buffer = allocator_.allocate(bytes).value();
    std::memcpy(buffer.data(), from, bytes);
    parts_.owned.push_back(std::move(buffer));
    return parts_.owned.back().data();
  }

  tensor::Allocator& allocator_;
  std::mt19937& random_;
  Weight::Parts parts_;
  std::vector<float> scales_;  // with the factor
  std::vector<std::uint8_t> zeros_;
  std::vector<std::int32_t> order_;
  std::vector<bool> fillers_;
};

}  // namespace motley::quant
