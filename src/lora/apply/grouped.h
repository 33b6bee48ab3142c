#pragma once

#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "lora/apply/apply.h"
#include "lora/apply/batch.h"
#include "ops/context.h"
#include "tensor/arena.h"

// Deltas for rows in groups: rows that have a label and an expert in common take the same factors,
// which are then read once for all of them.
namespace motley::lora {

// Numbers of all rows in rank space that a call keeps at once.
inline constexpr std::int64_t rank_space_numbers = std::int64_t{1} << 20;

// Rows that are put in order together: their numbers fit scratch_bytes beside rank space.
inline constexpr std::int64_t rows_at_once = std::int64_t{1} << 17;

// The rows of [begin, end) that have a label, by label and then by number. Memory comes from the
// arena.
std::span<const std::int32_t> rows_by_label(std::span<const std::int32_t> labels,
                                            std::int64_t begin, std::int64_t end,
                                            tensor::Arena& arena);
// Calls body(label, rows) for each label of such an order.
void for_labels(std::span<const std::int32_t> order, std::span<const std::int32_t> labels,
                FunctionRef<void(std::int32_t label, std::span<const std::int32_t> rows)> body);

// A linear map that an adapter may change, and where its result stands, in f32.
struct DeltaOutput {
  Site site;
  tensor::Tensor acc;
};

// Rows [begin, begin + count) of a call: row i reads x row x_rows[i] and adds to y row y_rows[i],
// or begin + i where these are null.
struct DeltaRows {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  const std::int32_t* x_rows = nullptr;
  const std::int32_t* y_rows = nullptr;
};

// Adds to all outputs the deltas of x, which they share. Takes rows that have a label and an expert
// in common, and works off as many at a time as scratch holds; what comes in stays until then.
class GroupedDelta {
 public:
  // `rows` is how many will come at most.
  GroupedDelta(const Batch& batch, const tensor::ConstTensor& x,
               std::span<const DeltaOutput> outputs, std::int64_t rows,
               const ops::Context& context);
  GroupedDelta(const GroupedDelta&) = delete;
  GroupedDelta& operator=(const GroupedDelta&) = delete;
  ~GroupedDelta();

  // The expert is 0 where the sites have none.
  void add(std::int32_t label, std::int32_t expert, const DeltaRows& rows);
  void finish();

 private:
  struct Group;
  struct Part;

  template <class Body>
  std::int64_t for_parts(std::int32_t label, std::int32_t expert, const Body& body) const;
  void shrink_group(const Group& group, std::int64_t begin, std::int64_t end);
  void expand_group(const Group& group, std::size_t output, std::int64_t begin, std::int64_t end);

  const Batch& batch_;
  const tensor::ConstTensor& x_;
  std::span<const DeltaOutput> outputs_;
  const ops::Context& context_;
  std::size_t mark_;
  std::span<float> ranks_;
  std::span<Group> groups_;
  std::size_t group_count_ = 0;
  std::int64_t ranks_used_ = 0;
  std::int64_t widest_ = 0;  // rank space of a row, among the groups
};

}  // namespace motley::lora
