#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace motley::text::unicode {

inline constexpr std::size_t code_points = 0x110000;

// A value for each code point, in blocks; equal blocks are stored once.
template <class Value>
class PointMap {
 public:
  PointMap() = default;

  // `values` are those of all code points.
  explicit PointMap(std::span<const Value> values) : blocks_(code_points / block) {
    std::unordered_map<std::string_view, std::uint32_t> kept;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const std::span<const Value> part = values.subspan(i * block, block);
      const std::string_view bytes(reinterpret_cast<const char*>(part.data()), part.size_bytes());
      const auto at = static_cast<std::uint32_t>(values_.size());
      const auto [place, fresh] = kept.try_emplace(bytes, at);
      if (fresh) values_.insert(values_.end(), part.begin(), part.end());
      blocks_[i] = place->second;
    }
  }

  Value operator[](char32_t code_point) const {
    return values_[blocks_[code_point / block] + code_point % block];
  }

 private:
  static constexpr std::size_t block = 128;

  std::vector<std::uint32_t> blocks_;  // where in values_ a block begins
  std::vector<Value> values_;
};

}  // namespace motley::text::unicode
