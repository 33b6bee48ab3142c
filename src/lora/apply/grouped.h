#pragma once

#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "dist/layout.h"
#include "lora/apply/apply.h"
#include "lora/apply/batch.h"
#include "ops/context.h"
#include "tensor/arena.h"

// Deltas for groups of rows: rows with the same label and expert use the same factors, which are
// then read once for all of them.
namespace motley::lora {

// The numbers in rank space that a call keeps at once.
inline constexpr std::int64_t rank_space_numbers = std::int64_t{1} << 20;

// The rows that are sorted together: their indices fit in scratch_bytes beside rank space.
inline constexpr std::int64_t rows_at_once = std::int64_t{1} << 17;

// The rows in [begin, end) that have a label, sorted by label and then by row. Memory comes from
// the arena.
std::span<const std::int32_t> rows_by_label(std::span<const std::int32_t> labels,
                                            std::int64_t begin, std::int64_t end,
                                            tensor::Arena& arena);
// Calls body(label, rows) for each label in such an order.
void for_labels(std::span<const std::int32_t> order, std::span<const std::int32_t> labels,
                FunctionRef<void(std::int32_t label, std::span<const std::int32_t> rows)> body);

// A linear map that an adapter may change, and its result in f32.
struct DeltaOutput {
  Site site;
  tensor::Tensor acc;
};

// Rows [begin, begin + count) of a call: row i reads row x_rows[i] of x and adds to row y_rows[i]
// of y, or begin + i where these are null.
struct DeltaRows {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  const std::int32_t* x_rows = nullptr;
  const std::int32_t* y_rows = nullptr;
};

// Whether every rank computes all rows in rank space, or each a part of them, which all then
// gather. The bits are the same. Ranks that share them add the same rows in the same order.
enum class Shrinks : std::uint8_t { own, shared };
// Of a call with so many rows, where ranks may share (ops::SharedShrinks).
Shrinks shrinks_of(bool may_share, std::int64_t rows, const ops::Context& context);

// Adds the deltas of x to all outputs, which share x. Collects rows with the same label and expert,
// and processes as many at a time as the scratch holds. The inputs must stay unchanged until then.
class GroupedDelta {
 public:
  // `rows`: the most rows that will be added.
  GroupedDelta(const Batch& batch, const tensor::ConstTensor& x,
               std::span<const DeltaOutput> outputs, std::int64_t rows, const ops::Context& context,
               Shrinks shrinks = Shrinks::own);
  GroupedDelta(const GroupedDelta&) = delete;
  GroupedDelta& operator=(const GroupedDelta&) = delete;
  ~GroupedDelta();

  // The expert is 0 for sites without experts.
  void add(std::int32_t label, std::int32_t expert, const DeltaRows& rows);
  void finish();

 private:
  struct Group;
  struct Part;

  template <class Body>
  std::int64_t for_parts(std::int32_t label, std::int32_t expert, const Body& body) const;
  void shrink_groups();
  void shrink_group(const Group& group, dist::Range own, dist::Range ranks);
  void expand_group(const Group& group, std::size_t output, std::int64_t begin, std::int64_t end);

  const Batch& batch_;
  const tensor::ConstTensor& x_;
  std::span<const DeltaOutput> outputs_;
  const ops::Context& context_;
  Shrinks shrinks_;
  std::size_t mark_;
  std::span<float> ranks_;
  std::span<Group> groups_;
  std::size_t group_count_ = 0;
  std::int64_t ranks_used_ = 0;
  std::int64_t widest_ = 0;  // ranks of a row, the maximum over the groups
};

}  // namespace motley::lora
