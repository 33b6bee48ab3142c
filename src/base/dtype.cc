#include "base/dtype.h"

#include <array>

namespace motley {
namespace {

struct Row {
  std::string_view name;
  int bits;
};

// In the order of the enumeration.
constexpr std::array<Row, dtype_count> table = {{{"F64", 64},
                                                 {"F32", 32},
                                                 {"F16", 16},
                                                 {"BF16", 16},
                                                 {"F8_E4M3", 8},
                                                 {"F8_E5M2", 8},
                                                 {"F8_E8M0", 8},
                                                 {"F4", 4},
                                                 {"I64", 64},
                                                 {"I32", 32},
                                                 {"I16", 16},
                                                 {"I8", 8},
                                                 {"U64", 64},
                                                 {"U32", 32},
                                                 {"U16", 16},
                                                 {"U8", 8},
                                                 {"BOOL", 8}}};

const Row& row(DType dtype) { return table[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::string_view name(DType dtype) { return row(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

int bits(DType dtype) { return row(dtype).bits; }

std::optional<std::int64_t> bytes_of(DType dtype, std::int64_t elements) {
  // In units of 8 elements, because the number of bits may overflow where the number of bytes does
  // not.
  const std::int64_t each = bits(dtype);
  const std::int64_t rest = elements % 8 * each;
  std::int64_t bytes = 0;
  if (elements < 0 || rest % 8 != 0 || __builtin_mul_overflow(elements / 8, each, &bytes) ||
      __builtin_add_overflow(bytes, rest / 8, &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

}  // namespace motley
