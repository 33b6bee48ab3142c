#include "wide/values.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/check.h"
#include "base/number_types.h"
#include "score/golden_model.h"

namespace motley::wide_tests {
namespace {

using score_tests::at;

// Of four fields that are uniform below 2^16.
constexpr std::int64_t mean = 2 * 65535;

std::int64_t integer(const json::Value& value) { return value.as_integer("number").value(); }

std::vector<std::int64_t> integers(const json::Value& list) {
  std::vector<std::int64_t> numbers;
  for (const json::Value& each : *list.as_array("numbers").value())
    numbers.push_back(integer(each));
  return numbers;
}

std::int64_t sum_of_fields(std::uint64_t bits) {
  return static_cast<std::int64_t>((bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) +
                                   ((bits >> 32) & 0xFFFF) + (bits >> 48)) -
         mean;
}

// Each byte scaled to 0 to 16, and 15 where that is 16: the mean is near 8, which stands for zero.
std::uint32_t packed_codes(std::uint64_t word) {
  std::uint64_t packed = 0;
  for (int i = 0; i < 8; ++i) {
    const std::uint64_t octet = (word >> (8 * i)) & 0xFF;
    packed |= std::min<std::uint64_t>((octet * 16 + 128) >> 8, 15) << (4 * i);
  }
  return static_cast<std::uint32_t>(packed);
}

template <class Element>
void store(std::byte* to, std::int64_t index, Element element) {
  std::memcpy(to + index * static_cast<std::int64_t>(sizeof element), &element, sizeof element);
}

template <class Element>
std::uint64_t checksum_of(std::span<const std::byte> tensor) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < tensor.size() / sizeof(Element); ++i) {
    Element element{};
    std::memcpy(&element, tensor.data() + i * sizeof element, sizeof element);
    total += element * (2 * std::uint64_t{i} + 1);
  }
  return total;
}

}  // namespace

std::uint64_t key_of(std::string_view text) {
  std::uint64_t key = 0xCBF29CE484222325;
  for (const char each : text) key = (key ^ static_cast<unsigned char>(each)) * 0x100000001B3;
  return key;
}

std::uint64_t word(std::uint64_t key, std::int64_t index) {
  std::uint64_t z = key + (static_cast<std::uint64_t>(index) + 1) * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

std::vector<std::string> Recipe::names() const {
  std::vector<std::string> all = {name};
  for (const auto& [first, last] : ranges) {
    std::vector<std::string> longer;
    for (const std::string& each : all) {
      const std::size_t gap = each.find("{}");
      MOTLEY_CHECK(gap != std::string::npos, "a name has a gap for each range");
      for (std::int64_t i = first; i < last; ++i)
        longer.push_back(each.substr(0, gap) + std::to_string(i) + each.substr(gap + 2));
    }
    all = std::move(longer);
  }
  return all;
}

std::int64_t Recipe::bytes() const { return bytes_of(dtype, elements()).value(); }

Recipe read_recipe(const json::Value& record) {
  const json::Object& fields = *record.as_object("tensor").value();
  Recipe recipe;
  recipe.name = *at(record, "name").as_string("name").value();
  recipe.dtype = dtype_from_name(*at(record, "dtype").as_string("dtype").value()).value();
  recipe.shape = tensor::Shape::make(integers(at(record, "shape"))).value();
  if (const json::Value* const ranges = fields.find("ranges")) {
    for (const json::Value& range : *ranges->as_array("ranges").value()) {
      const std::vector<std::int64_t> ends = integers(range);
      recipe.ranges.push_back({ends.at(0), ends.at(1)});
    }
  }
  if (const json::Value* const numbers = fields.find("numbers"))
    recipe.numbers = integers(*numbers);
  if (const json::Value* const offset = fields.find("offset")) {
    recipe.offset = integer(*offset);
    recipe.scale = static_cast<float>(at(record, "scale").as_number("scale").value());
  }
  if (const json::Value* const checksums = fields.find("checksums")) {
    for (const json::Value& each : *checksums->as_array("checksums").value()) {
      const std::string& text = *each.as_string("checksum").value();
      std::uint64_t number = 0;
      std::from_chars(text.data(), text.data() + text.size(), number);
      recipe.checksums.push_back(number);
    }
  }
  return recipe;
}

void fill(const Recipe& recipe, std::uint64_t key, std::int64_t first, std::int64_t count,
          std::byte* to) {
  // One product and no sum behind it: there is nothing that a compiler could contract.
  const auto product = [&](std::int64_t i) {
    return static_cast<float>(sum_of_fields(word(key, first + i)) + recipe.offset) * recipe.scale;
  };
  for (std::int64_t i = 0; i < count; ++i) {
    switch (recipe.dtype) {
      case DType::bf16:
        store(to, i, bf16::from(product(i)));
        break;
      case DType::f32:
        store(to, i, bf16::from(product(i)).to_float());
        break;
      case DType::f8_e4m3:
        store(to, i, f8_e4m3::from(product(i), Overflow::saturate));
        break;
      case DType::i32:
        store(to, i, packed_codes(word(key, first + i)));
        break;
      case DType::i64:
        store(to, i, recipe.numbers.at(static_cast<std::size_t>(first + i)));
        break;
      default:
        MOTLEY_CHECK(false, "a recipe's type is one of these");
    }
  }
}

std::uint64_t checksum(std::span<const std::byte> tensor, DType dtype) {
  switch (bits(dtype)) {
    case 8:
      return checksum_of<std::uint8_t>(tensor);
    case 16:
      return checksum_of<std::uint16_t>(tensor);
    case 32:
      return checksum_of<std::uint32_t>(tensor);
    default:
      return checksum_of<std::uint64_t>(tensor);
  }
}

}  // namespace motley::wide_tests
