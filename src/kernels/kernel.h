// What a kernel says of itself. A kernel is a value, and so is a problem: which kernel runs is a
// function of the problem and of a table of measured thresholds alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace motley::kernels {

// Whether a kernel can compute a problem: yes, or why not. Kernels are asked in every step, so a
// refusal is put into words only where it is read.
class Support {
 public:
  static Support yes() { return {}; }
  // `reason` lives as long as the program; each {} in it stands for a number.
  static Support no(const char* reason, std::int64_t first = 0, std::int64_t second = 0) {
    Support support;
    support.literal_ = reason;
    support.numbers_ = {first, second};
    return support;
  }
  // Of a load, not of a step.
  static Support no(std::string reason) {
    Support support;
    support.text_ = std::move(reason);
    return support;
  }

  explicit operator bool() const { return literal_ == nullptr && text_.empty(); }
  // Of a no.
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

// The order of a kernel's sums, and its roundings. Kernels of one arithmetic give the same bits for
// the same problem.
struct Arithmetic {
  std::string_view name;

  friend bool operator==(const Arithmetic&, const Arithmetic&) = default;
};

// What a kernel is compiled for.
enum class Architecture : std::uint8_t { cpu, any_gpu, sm_90a };

// How a kernel's weights lie in memory.
enum class WeightLayout : std::uint8_t {
  none,    // it has none
  rows,    // as files have them
  packed,  // in the kernel's own order, made at load
};

// What a block computes at a time; 0: as much as there is.
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
