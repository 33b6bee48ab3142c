#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "lora/site.h"

namespace motley::tensor {
class Checkpoint;
}

namespace motley::lora {

// Ranks beyond this are refused: kernels keep a row in rank space on their stack.
inline constexpr int max_rank = 2048;

// A 128-bit hash over an adapter's canonical form. Folders with the same deltas have the same
// version, whatever their convention. Caches use it as a key.
struct ContentVersion {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend auto operator<=>(const ContentVersion&, const ContentVersion&) = default;
};

// 32 hexadecimal digits.
std::string to_string(ContentVersion version);

// Row-major numbers of one factor, table or vector: `values`, or what a file in memory stores.
struct Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<float> values = {};
  // Numbers of type `dtype` at any alignment, which must outlive the matrix (Adapter::file); null:
  // `values` has the numbers.
  const std::byte* stored = nullptr;
  DType dtype = DType::f32;

  std::int64_t size() const { return rows * columns; }
  // Of the numbers as they are held.
  std::uint64_t bytes() const;
  // Of a matrix with `values`.
  const float* row(std::int64_t index) const { return values.data() + index * columns; }
  // For numbers one by one, where time does not matter.
  float at(std::int64_t row, std::int64_t column) const;
  // The numbers from the one at `first` on.
  void read(std::int64_t first, std::span<float> to) const;
  // All of them.
  std::vector<float> numbers() const;
  // Some of its rows: of what is stored, else a copy.
  Matrix rows_between(std::int64_t begin, std::int64_t end) const;
};

// delta = scale * B A. a and b are indices into Adapter::matrices: A [rank, in], B [out, rank], but
// the embedding's A is [vocabulary, rank], so that a token's column is contiguous. Equal indices
// mean that several deltas share a factor: A of gate and up in fused files, or a shared outer
// factor of all experts. Absent: rank 0.
struct Factors {
  int a = -1;
  int b = -1;
  int rank = 0;
  float scale = 0;  // alpha / rank, or alpha / sqrt(rank)

  bool present() const { return rank > 0; }
  friend bool operator==(const Factors&, const Factors&) = default;
};

// Everything that an adapter does at one site. The numbers below are indices into
// Adapter::matrices; -1: none.
struct SiteDelta {
  Site site;
  std::int64_t in = 0;
  std::int64_t out = 0;
  // One for each expert of an expert site, else one.
  std::vector<Factors> factors;
  int lora_bias = -1;      // [1, out], multiplied by the scale as the delta is
  int gain = -1;           // [1, out], DoRA's magnitude over the norm of W + scale B A
  int replaced = -1;       // a whole weight [out, in]; for the embedding [vocabulary, hidden]
  int replaced_bias = -1;  // [1, out], instead of the base's
};

// The convention by which a file names expert factors, for `motley inspect`.
enum class Convention : std::uint8_t {
  none,          // no factors on experts
  per_expert,    // experts.{e}.gate_proj
  packed,        // experts.lora_A [E r, in], as PEFT packs parameters
  linears,       // experts.gate_up_projs.{e}
  shared_outer,  // experts.w1.lora_A [1 or E, r, in]
};
std::string_view name(Convention convention);

// An adapter in canonical form, in the host's memory.
struct Adapter {
  ContentVersion version;
  std::vector<Matrix> matrices;
  std::vector<SiteDelta> sites;  // in ascending order of site
  Convention convention = Convention::none;
  bool swapped = false;       // packed factors had in and out exchanged
  bool expert_major = false;  // packed B columns are in the order e * r + rank
  int largest_rank = 0;
  // What matrices that are stored refer to; null if a content that the caller holds has it.
  std::shared_ptr<const tensor::Checkpoint> file = {};

  const SiteDelta* find(Site site) const;
};

// Why an adapter cannot be part of a mix or have a scale other than 1 (DoRA, replaced tensors);
// empty if it can.
std::string_view exclusive_reason(const Adapter& adapter);

ContentVersion hash_content(const Adapter& adapter);

// The same, or nothing if a stored number is not finite: both take one pass over the file.
std::optional<ContentVersion> hash_finite_content(const Adapter& adapter);

}  // namespace motley::lora
