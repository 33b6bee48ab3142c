#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/weight_view.h"

// Thresholds that were measured on one card for one model: what `bench --tune` writes and
// `--tuning` reads. Kernels are names here, so a build without CUDA reads the file too.
namespace motley::kernels {

// Products of one x that are launched one after the other, or together.
struct DenseShape {
  WeightKind kind = WeightKind::bf16;
  std::int64_t group = 0;  // WeightView::block_columns
  std::int64_t inputs = 0;
  std::vector<std::int64_t> outputs;  // of each product

  friend bool operator==(const DenseShape&, const DenseShape&) = default;
};

struct ExpertLayerShape {
  std::int64_t bits = 16;  // of a code
  std::int64_t experts = 0;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t experts_per_token = 0;
  bool adapters = false;  // some token of the step has one

  friend bool operator==(const ExpertLayerShape&, const ExpertLayerShape&) = default;
};

// The kernel to take up to a number of rows, if it supports the problem.
struct TunedRow {
  static constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();

  std::int64_t up_to = any;
  std::string kernel;  // of experts the name of a tiling

  friend bool operator==(const TunedRow&, const TunedRow&) = default;
};

// What candidates took at numbers of rows.
struct MeasuredTimes {
  struct Candidate {
    std::string name;
    // us for each number of rows; nothing: it does not support the problem with so many.
    std::vector<std::optional<double>> us;

    friend bool operator==(const Candidate&, const Candidate&) = default;
  };

  std::vector<std::int64_t> rows;  // ascending
  std::vector<Candidate> candidates;

  friend bool operator==(const MeasuredTimes&, const MeasuredTimes&) = default;
};

template <class Shape>
struct Tuned {
  Shape shape;
  std::vector<TunedRow> rows;  // ascending; the first that applies counts
  MeasuredTimes times;         // the record of the rows

  friend bool operator==(const Tuned&, const Tuned&) = default;
};
using TunedDense = Tuned<DenseShape>;
using TunedExperts = Tuned<ExpertLayerShape>;

struct Tuning {
  std::string file = {};  // that it was read from
  std::string card = {};
  std::string driver = {};
  std::string date = {};
  std::string model = {};
  std::vector<TunedDense> dense = {};
  std::vector<TunedExperts> experts = {};
  // Of several ranks: the rows, of experts the (token, expert) pairs, of a step from which each
  // multiplies only a part by adapters' A (ops::SharedShrinks). Not measured by `bench --tune`.
  std::optional<std::int64_t> shared_shrinks_from = {};

  friend bool operator==(const Tuning&, const Tuning&) = default;
};

// Refuses what write_tuning() would not write; `where` names the file.
Result<Tuning> parse_tuning(std::string_view text, std::string_view where);
std::string write_tuning(const Tuning& tuning);

}  // namespace motley::kernels
