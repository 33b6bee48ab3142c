#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/dtype.h"

// A forward pass as a list of ops: what is computed from what, in order. Nothing is computed here:
// model/forward runs the ops, one by one or several in one launch (match.h).
namespace motley::ops {

enum class OpKind : std::uint8_t {
  embed,
  adapt_embedding,
  rope_table,
  add,
  norm,
  arrange_inputs,
  linear,
  bias,
  adapt,
  clip,
  rotate,
  store,
  round,
  attend,
  product_per_head,
  scale_queries,
  adapt_per_head,
  gather,
  expand_latents,
  attend_expanded,
  recur,
  convolve,
  delta_gates,
  route,
  local_experts,
  experts,
  activate,
  add_scaled,
  sum_over_ranks,
  norm_over_ranks,
  input_maxima_over_ranks,
  gather_over_ranks,
};
inline constexpr std::size_t op_kind_count =
    static_cast<std::size_t>(OpKind::gather_over_ranks) + 1;
std::string_view name(OpKind kind);

// What the rows of a value correspond to.
enum class RowsOf : std::uint8_t {
  tokens,     // of the step
  positions,  // of the part's sequences, earlier ones too
};
inline constexpr std::size_t rows_of_count = 2;

// A block may have two forms of some of its ops. A step's sequences are divided into parts, and
// each part has one form. Consecutive ops with forms run part by part.
using Form = std::uint8_t;
inline constexpr Form all_forms = 0;  // the op runs for all rows
inline constexpr Form first_form = 1;
inline constexpr Form second_form = 2;

// A set of kinds.
using OpKinds = std::uint64_t;
constexpr OpKinds bit(OpKind kind) { return OpKinds{1} << static_cast<int>(kind); }
static_assert(op_kind_count <= 64);

using ValueId = std::int32_t;
inline constexpr ValueId no_value = -1;

// The inputs and outputs of ops: `width` numbers per row, or per head of a row. A view has some
// columns of another value, its root. Several ops may write the same value.
struct Value {
  std::string_view name;
  RowsOf rows = RowsOf::tokens;
  DType type = DType::f32;
  std::int64_t width = 0;
  std::int64_t heads = 0;        // 0: one row of numbers
  ValueId root = no_value;       // no_value: it is a root itself
  std::int64_t first = 0;        // offset in the root's row
  std::int64_t head_stride = 0;  // in the root's row
  std::int64_t in_head = 0;      // offset of its columns in a head
  int external = -1;             // number of a caller's buffer that holds it
};

struct Op {
  static constexpr std::size_t max_values = 5;

  OpKind kind = OpKind::embed;
  // What it may be in a step: an adapter's op is a bias or absent where no adapter applies.
  OpKinds live_kinds = 0;
  bool may_vanish = false;
  Form form = all_forms;
  std::array<ValueId, max_values> reads{no_value, no_value, no_value, no_value, no_value};
  std::array<ValueId, max_values> writes{no_value, no_value, no_value, no_value, no_value};
  const void* params = nullptr;  // of the kind's own type, owned by the list

  // `Params` declares its kind, so that parameters of one kind are not read as another's.
  template <class Params>
  const Params& as() const {
    MOTLEY_CHECK(Params::kind == kind, "parameters of the op's kind");
    return *static_cast<const Params*>(params);
  }
};

struct OpUse {
  std::initializer_list<ValueId> reads;  // no_value: nothing
  std::initializer_list<ValueId> writes;
  OpKinds live_kinds = 0;  // beside its own
  bool may_vanish = false;
};

class OpList {
 public:
  ValueId add_value(const Value& value);
  // Columns [first, first + width) of a value without heads.
  ValueId columns(ValueId of, std::int64_t first, std::int64_t width);
  // A value's columns as heads of one width; then columns of each of them.
  ValueId split_heads(ValueId of, std::int64_t heads);
  ValueId head_columns(ValueId of, std::int64_t first, std::int64_t width);
  // The value is in the caller's buffer `number`.
  void set_external(ValueId value, int number) { values_[at(root_of(value))].external = number; }

  // The next ops are for parts of this form.
  void serve(Form form) { form_ = form; }
  template <class Params>
  void append(const OpUse& use, Params params) {
    auto owned = std::make_shared<const Params>(std::move(params));
    append(Params::kind, use, owned.get());
    params_.push_back(std::move(owned));
  }

  std::span<const Op> ops() const { return ops_; }
  std::span<const Value> values() const { return values_; }
  const Value& value(ValueId id) const { return values_[at(id)]; }
  ValueId root_of(ValueId id) const { return value(id).root == no_value ? id : value(id).root; }
  // Whether the two share numbers.
  bool overlap(ValueId a, ValueId b) const;
  // The index in ops() of the last op that reads any part of the root; -1: none does.
  std::int32_t last_reader(ValueId root) const { return last_readers_[at(root)]; }

 private:
  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }
  void append(OpKind kind, const OpUse& use, const void* params);

  ValueId add(const Value& value);

  std::vector<Value> values_;
  std::vector<std::int32_t> last_readers_;  // of each value, kept for roots
  std::vector<Op> ops_;
  std::vector<std::shared_ptr<const void>> params_;
  Form form_ = all_forms;
};

}  // namespace motley::ops
