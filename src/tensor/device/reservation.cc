#include "tensor/device/reservation.h"

#include <algorithm>
#include <sys/mman.h>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/units.h"

namespace motley::tensor {
namespace {

// Ranges are aligned for large pages.
constexpr std::size_t large_page = std::size_t{2} << 20;
constexpr std::size_t small_page = 4096;

class WholeBuffer final : public Reservation {
 public:
  explicit WholeBuffer(Buffer buffer)
      : Reservation({.data = buffer.data(),
                     .size = buffer.size(),
                     .piece_bytes = std::max<std::size_t>(buffer.size(), 1),
                     .pinned = buffer.pinned()},
                    buffer.size()),
        buffer_(std::move(buffer)) {}

 private:
  Result<void> commit_piece(std::size_t, std::size_t) override {
    MOTLEY_CHECK(false, "a buffer is committed from the start");
  }

  Buffer buffer_;
};

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

Result<void> Reservation::commit() {
  const std::size_t begin = committed();
  MOTLEY_CHECK(begin < size_, "a reservation with addresses left");
  const std::size_t bytes = std::min(piece_bytes_, size_ - begin);
  MOTLEY_TRY_VOID(commit_piece(begin, bytes));
  committed_.store(begin + bytes, std::memory_order_release);
  return {};
}

std::unique_ptr<Reservation> reservation_of(Buffer buffer) {
  return std::make_unique<WholeBuffer>(std::move(buffer));
}

Result<AddressRange> AddressRange::reserve(std::size_t bytes) {
  const auto refused = [&] {
    return Error(ErrorCode::out_of_memory, cat("no addresses for ", format_bytes(bytes)), "cpu",
                 "ask for less, or raise the limit of the process's addresses (ulimit -v)");
  };
  if (bytes > SIZE_MAX - 2 * large_page) return refused();
  const std::size_t size = rounded_up(std::max<std::size_t>(bytes, 1), large_page);
  void* const found = ::mmap(nullptr, size + large_page, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return refused();
  auto* const begin = static_cast<std::byte*>(found);
  const std::size_t before = rounded_up(reinterpret_cast<std::uintptr_t>(begin), large_page) -
                             reinterpret_cast<std::uintptr_t>(begin);
  if (before > 0) ::munmap(begin, before);
  if (before < large_page) ::munmap(begin + before + size, large_page - before);
  ::madvise(begin + before, size, MADV_HUGEPAGE);
  return AddressRange(begin + before, size);
}

AddressRange::AddressRange(AddressRange&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

AddressRange& AddressRange::operator=(AddressRange&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

AddressRange::~AddressRange() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Result<void> AddressRange::open(std::size_t begin, std::size_t bytes) {
  MOTLEY_CHECK(begin % small_page == 0 && begin <= size_ && bytes <= size_ - begin,
               "whole pages of the range");
  std::byte* const at = data_ + begin;
  if (::mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0)
    return Error(ErrorCode::out_of_memory,
                 cat("the system gives no ", format_bytes(bytes), " of memory"), "cpu",
                 "free some of the host's memory, or ask for less");
  // The first write to a page commits its memory.
  for (std::size_t page = 0; page < bytes; page += small_page)
    *const_cast<volatile std::byte*>(at + page) = std::byte{0};
  return {};
}

void AddressRange::close(std::size_t begin, std::size_t bytes) noexcept {
  ::madvise(data_ + begin, bytes, MADV_DONTNEED);
  ::mprotect(data_ + begin, bytes, PROT_NONE);
}

}  // namespace motley::tensor
