#include "tensor/arena.h"

#include <algorithm>
#include <cstring>

#include "base/cat.h"
#include "base/units.h"

namespace motley::tensor {

Arena::Arena(Buffer buffer)
    : buffer_(std::move(buffer)),
      memory_(buffer_.data()),
      bytes_(buffer_.size()),
      device_(buffer_.device()) {}

Result<Tensor> Arena::allocate(DType dtype, const Shape& shape) {
  const auto bytes = bytes_of(dtype, shape.elements());
  MOTLEY_CHECK(bytes.has_value(), "a tensor of whole bytes");
  const std::size_t begin =
      (used_ + Allocator::alignment - 1) / Allocator::alignment * Allocator::alignment;
  const auto size = static_cast<std::size_t>(*bytes);
  if (begin > bytes_ || size > bytes_ - begin) {
    return Error(ErrorCode::out_of_memory,
                 cat("no room for ", format_bytes(size), " more in an arena of ",
                     format_bytes(bytes_), " with ", format_bytes(used_), " in use"),
                 to_string(device_), "make the batch smaller or the arena larger");
  }
  poison(begin, begin + size);
  used_ = begin + size;
  peak_ = std::max(peak_, used_);
  return Tensor(memory_ + begin, dtype, shape, device_);
}

void Arena::rewind(std::size_t mark) {
  MOTLEY_CHECK(mark <= used_, "a mark of this arena, not rewound past already");
  poison(mark, used_);
  used_ = mark;
}

void Arena::poison([[maybe_unused]] std::size_t begin, [[maybe_unused]] std::size_t end) {
#ifdef MOTLEY_DEBUG
  // All ones is NaN in every floating-point format.
  if (device_.kind == DeviceKind::cpu && end > begin)
    std::memset(memory_ + begin, 0xff, end - begin);
#endif
}

}  // namespace motley::tensor
