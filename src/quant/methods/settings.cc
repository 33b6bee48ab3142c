#include "quant/methods/methods.h"

namespace motley::quant {

Result<std::optional<std::array<std::int64_t, 2>>> Settings::block(std::string_view key) const {
  using Block = std::optional<std::array<std::int64_t, 2>>;
  const json::Value* const value = find(key);
  if (value == nullptr) return Block();
  MOTLEY_TRY(const json::Array* sizes, value->as_array(place(key)));
  if (sizes->size() != 2)
    return bad_setting(cat(sizes->size(), " numbers"), place(key),
                       "give rows and columns of a block");
  std::array<std::int64_t, 2> lengths{};
  for (std::size_t i = 0; i < 2; ++i) {
    MOTLEY_TRY(lengths[i], (*sizes)[i].as_integer(place(key)));
    if (lengths[i] < 1 || lengths[i] > 1'000'000)
      return bad_setting(cat("blocks of length ", lengths[i]), place(key),
                         "lengths are 1 to 1000000");
  }
  return Block(lengths);
}

}  // namespace motley::quant
