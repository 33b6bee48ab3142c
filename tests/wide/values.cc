#include "wide/values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numeric>

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

// A code of 8 bits is a byte of the word. One of 4 bits is a byte scaled to 0 to 16, and 15 where
// that is 16. Their mean is near the middle, which stands for zero.
std::uint32_t packed_codes(std::uint64_t word, int bits, int count) {
  std::uint64_t packed = 0;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t octet = (word >> (8 * i)) & 0xFF;
    packed |= (bits == 4 ? std::min<std::uint64_t>((octet * 16 + 128) >> 8, 15) : octet)
              << (bits * i);
  }
  return static_cast<std::uint32_t>(packed);
}

// Groups take columns in the order of their words.
std::vector<std::int64_t> groups_of_columns(std::uint64_t key, std::int64_t columns,
                                            std::int64_t group) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(columns));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::int64_t column) { return word(key, column); });
  std::vector<std::int64_t> groups(order.size());
  for (std::int64_t i = 0; i < columns; ++i)
    groups[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] = i / group;
  return groups;
}

std::int64_t nearest(float product, std::int64_t lowest, std::int64_t highest) {
  return std::clamp(static_cast<std::int64_t>(std::nearbyint(product)), lowest, highest);
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
  recipe.part = fields.contains("part");
  if (const json::Value* const codes = fields.find("codes"))
    recipe.codes = static_cast<int>(integer(*codes));
  if (const json::Value* const group = fields.find("group")) recipe.group = integer(*group);
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
  const std::vector<std::int64_t> numbers =
      recipe.group != 0 ? groups_of_columns(key, recipe.elements(), recipe.group) : recipe.numbers;
  const int codes = recipe.codes == 0 ? 0 : bits(recipe.dtype) / recipe.codes;
  const auto integer_at = [&](std::int64_t i) -> std::int64_t {
    if (!numbers.empty()) return numbers[static_cast<std::size_t>(first + i) % numbers.size()];
    return packed_codes(word(key, first + i), recipe.codes, codes);
  };
  // One product and no sum behind it: there is nothing that a compiler could contract.
  const auto product = [&](std::int64_t i) {
    return static_cast<float>(sum_of_fields(word(key, first + i)) + recipe.offset) * recipe.scale;
  };
  for (std::int64_t i = 0; i < count; ++i) {
    switch (recipe.dtype) {
      case DType::bf16:
        store(to, i, bf16::from(product(i)));
        break;
      case DType::f16:
        store(to, i, f16::from(product(i)));
        break;
      case DType::f32:
        store(to, i, bf16::from(product(i)).to_float());
        break;
      case DType::f8_e4m3:
        store(to, i, f8_e4m3::from(product(i), Overflow::saturate));
        break;
      case DType::i8:
        store(to, i, static_cast<std::int8_t>(nearest(product(i), -128, 127)));
        break;
      case DType::u8:
        store(to, i,
              static_cast<std::uint8_t>(codes != 0 ? integer_at(i) : nearest(product(i), 0, 255)));
        break;
      case DType::i32:
        store(to, i, static_cast<std::uint32_t>(integer_at(i)));
        break;
      case DType::i64:
        store(to, i, integer_at(i));
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
