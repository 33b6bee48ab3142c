#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "lora/files/adapter.h"
#include "lora/files/config/config.h"
#include "lora/files/conventions/tensor_names.h"
#include "lora/site.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::lora {

inline constexpr std::size_t part_count = static_cast<std::size_t>(Part::trainable_tokens) + 1;

// All tensors of one module, in one spelling.
struct Unit {
  using Item = tensor::Checkpoint::Item;

  Module module;
  std::string path;                             // as spelled in the file
  std::array<const Item*, part_count> parts{};  // by Part; null where the file has none
  bool weight_in_base_layer = false;            // PEFT's copy of the base's tensor

  const Item* part(Part part) const { return parts[static_cast<std::size_t>(part)]; }
};

using Units = std::map<Module, Unit>;

// The sites of a base by their names.
class SiteIndex {
 public:
  explicit SiteIndex(const BaseView& base);

  const SiteSpec* find(Site site) const;
  std::int32_t layers() const { return layers_; }
  // No dimension of an adapter's tensor is larger, in any spelling.
  std::int64_t longest_dimension() const { return longest_dimension_; }

 private:
  std::map<Site, SiteSpec> sites_;
  std::int32_t layers_ = 0;
  std::int64_t longest_dimension_ = 0;
};

// "tensor 'x'", where every message about a tensor points.
std::string place_of(const Unit::Item& item);
Error bad_tensor(const Unit::Item& item, std::string_view what, std::string_view fix = {});
Error unsupported_tensor(const Unit::Item& item, std::string_view what, std::string_view fix = {});

// Whether a file's numbers can be read, or only its header is there and all numbers are zeros.
enum class Numbers : std::uint8_t { present, to_come };

// The contents of a file.
struct Gathered {
  Units units;
  std::vector<std::string> ignored;  // description and name of tensors that have no effect here
  std::size_t copies = 0;            // whole tensors that equal the base's and so replace nothing
  bool biases = false;               // whether biases replace the base's, even with equal values
};

// Assigns every tensor of the file to its unit, or to `ignored`. Errors: unknown names, modules
// that the base lacks, parts that a module cannot have, and tensors that are not floating-point
// numbers.
Result<Gathered> gather(const tensor::Checkpoint& file, const Config& config, const BaseView& base,
                        const SiteIndex& sites, Numbers numbers = Numbers::present);

// Refuses by its header a file that gather() would refuse for a name or a type, and one with a
// tensor that is larger than any part of an adapter of this base can be. For use before the
// tensors' bytes are read.
Result<void> judge_header(const tensor::SafetensorsHeader& header, const Config& config,
                          const BaseView& base, const SiteIndex& sites);

// All elements of a tensor in their order, as rows x columns. An infinity or NaN is an error.
Result<Matrix> read_matrix(const Unit::Item& item, std::int64_t rows, std::int64_t columns);

// The same numbers without a copy: the file must outlive the matrix, and whether they are finite is
// found where all are hashed.
Matrix view_matrix(const Unit::Item& item, std::int64_t rows, std::int64_t columns);

// The first tensor with an infinity or NaN as an error, as read_matrix() has it.
Error not_finite(const Units& units);

// Both factors, or an error that names the missing one.
Result<void> require_both(const Unit::Item* a, const Unit::Item* b, std::string_view b_name,
                          std::string_view a_name);

// Checks the rank of factors against that of the configuration.
Result<void> check_rank(const Unit::Item& a, std::int64_t rank_of_a, const Unit::Item& b,
                        std::int64_t rank_of_b, std::int64_t rank_of_config);

}  // namespace motley::lora
