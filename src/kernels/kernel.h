// Descriptions of kernels. A kernel is a value, and so is a problem: the kernel that runs depends
// only on the problem and on a table of measured thresholds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace motley::kernels {

// Whether a kernel supports a problem, and if not, why. Every step asks, so a refusal is formatted
// only when it is read.
class Support {
 public:
  static Support yes() { return {}; }
  // `reason` must live as long as the program; each {} in it is replaced by a number.
  static Support no(const char* reason, std::int64_t first = 0, std::int64_t second = 0) {
    Support support;
    support.literal_ = reason;
    support.numbers_ = {first, second};
    return support;
  }
  // For checks at load, not in a step.
  static Support no(std::string reason) {
    Support support;
    support.text_ = std::move(reason);
    return support;
  }

  explicit operator bool() const { return literal_ == nullptr && text_.empty(); }
  // Only of a refusal.
  std::string reason() const {
    if (literal_ == nullptr) return text_;
    std::string reason = literal_;
    for (const std::int64_t number : numbers_) {
      const std::size_t at = reason.find("{}");
      if (at != std::string::npos) reason.replace(at, 2, std::to_string(number));
    }
    return reason;
  }

 private:
  Support() = default;

  const char* literal_ = nullptr;
  std::array<std::int64_t, 2> numbers_{};
  std::string text_;
};

// The order of a kernel's sums and its roundings. Kernels with the same arithmetic give the same
// bits for the same problem.
struct Arithmetic {
  std::string_view name;

  friend bool operator==(const Arithmetic&, const Arithmetic&) = default;
};

// The architecture for which a kernel is compiled.
enum class Architecture : std::uint8_t { cpu, any_gpu, sm_90a };

// The layout of a kernel's weights.
enum class WeightLayout : std::uint8_t {
  none,    // it has none
  rows,    // as in checkpoint files
  packed,  // in the kernel's own order, packed at load
};

// What a block computes at a time; 0: everything.
struct Tile {
  int outputs = 0;
  int rows = 0;
  int k = 0;  // of a stage
};

struct KernelInfo {
  std::string_view name;
  Architecture architecture = Architecture::any_gpu;
  WeightLayout layout = WeightLayout::rows;
  Arithmetic arithmetic;
  Tile tile{};
};

}  // namespace motley::kernels
