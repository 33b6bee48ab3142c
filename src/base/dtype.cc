#include "base/dtype.h"

#include <array>

namespace motley {
namespace {

struct Row {
  std::string_view name;
  int bits;
  bool floating_point;
};

// In the order of the enumeration.
constexpr std::array<Row, dtype_count> table = {{{"F64", 64, true},
                                                 {"F32", 32, true},
                                                 {"F16", 16, true},
                                                 {"BF16", 16, true},
                                                 {"F8_E4M3", 8, true},
                                                 {"F8_E5M2", 8, true},
                                                 {"F8_E8M0", 8, true},
                                                 {"F4", 4, true},
                                                 {"I64", 64, false},
                                                 {"I32", 32, false},
                                                 {"I16", 16, false},
                                                 {"I8", 8, false},
                                                 {"U64", 64, false},
                                                 {"U32", 32, false},
                                                 {"U16", 16, false},
                                                 {"U8", 8, false},
                                                 {"BOOL", 8, false}}};

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

bool is_floating_point(DType dtype) { return row(dtype).floating_point; }

std::optional<std::int64_t> bytes_of(DType dtype, std::int64_t elements) {
  // Eight elements at a time, because the number of bits may overflow where the bytes do not.
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
