#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/elementary.h"
#include "kernels/tuning/tuning.h"

// A GPU's dense kernels one by one, for tuning, and which of them are selected, for reports. In a
// build without CUDA there are none.
namespace motley::kernels::cuda {

struct Card {
  std::string name;
  std::string driver;
};
Result<Card> card_of(int device);

// Whether the kernels that it names exist.
Result<void> check_tuning(const Tuning& tuning);

// The name of kernel `number` of the grouped GEMMs, as in a tuning.
std::string tiling_name(int number);

// The kernels that compute products of bf16 rows, but for the exact one.
std::span<const std::string_view> dense_candidates();

// The products as they are launched: contiguous ones are one.
std::vector<Linear> join_products(std::span<const Linear> products);

// Whether a kernel computes all of the products, in as few launches as it can. May search for
// algorithms of a library.
bool can_run_dense(std::string_view kernel, std::span<const Linear> products, StreamHandle stream);
void run_dense(std::string_view kernel, std::span<const Linear> products, StreamHandle stream);

// What is selected for products of one x. It is assumed that a library has an algorithm.
struct DenseSelection {
  static constexpr std::int64_t few_rows = 1;
  static constexpr std::int64_t many_rows = 1024;

  struct PassedOver {
    std::string_view kernel;
    std::string reason;

    friend bool operator==(const PassedOver&, const PassedOver&) = default;
  };

  std::string_view few;
  std::string_view many;
  // Kernels that come first for weights of the kind, and do not take these.
  std::vector<PassedOver> passed_over;
};
struct DenseQuestion {
  std::span<const WeightView> products;
  bool exact = false;  // float32 throughout
  bool batch_invariant = false;
  const Tuning* tuning = nullptr;  // whose kernels exist
};
std::optional<DenseSelection> describe_dense(const DenseQuestion& question);

}  // namespace motley::kernels::cuda
