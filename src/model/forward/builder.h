#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "model/forward/op_params.h"
#include "model/linear.h"
#include "ops/context.h"
#include "ops/list/op_list.h"

namespace motley::model {

// Appends ops to a list, for the blocks of a model: one call per op, which creates the value that
// the op writes.
class Builder {
 public:
  struct Types {
    DType activations = DType::f32;
    DType kv = DType::f32;  // of keys and values in KV memory
  };
  Builder(ops::OpList& list, const ops::Context& device, const Types& types)
      : list_(list), device_(device), types_(types) {}

  ops::OpList& list() { return list_; }
  // The kernels and options of the device; without stream and scratch.
  const ops::Context& device() const { return device_; }
  DType activations() const { return types_.activations; }
  DType kv_type() const { return types_.kv; }
  ValueId value(std::string_view name, DType type, std::int64_t width,
                ops::RowsOf rows = ops::RowsOf::tokens);
  // `first`: the table's first row, if it is cut over ranks.
  ValueId embed(const Linear& table, std::optional<std::int64_t> first);
  // cos and sin for the positions of the rows, for rotate() by that spec. The table must outlive
  // the list.
  void add_rope_table(const RopeTable& table);
  ValueId add(ValueId a, ValueId b);
  void add_in_place(ValueId x, ValueId y);  // y += x
  void add_scaled(ValueId x, ValueId scale, ValueId y);
  // The result has the type of activations.
  ValueId norm(const Norm& norm, ValueId x);
  void norm(const Norm& norm, ValueId x, ValueId out);
  void norm_in_place(const Norm& norm, ValueId x) { this->norm(norm, x, x); }
  // Maps of one x, with deltas and biases behind their products. Results are adjacent, in float32.
  struct Joined {
    ValueId all;
    std::vector<ValueId> each;
  };
  Joined linears(std::initializer_list<const Linear*> maps, ValueId x, std::string_view name);
  ValueId linear(const Linear& map, ValueId x, std::string_view name);
  ValueId logits(const Linear& router, const moe::RouterSpec& spec, ValueId x);
  void clip(ValueId x, float limit);
  // Nothing to do for a spec of 0 dims.
  void rotate(ValueId heads, const ops::RopeSpec& spec);
  void store(ValueId heads, std::int32_t layer, std::size_t cache);
  void round(ValueId x, ValueId out);
  // What stands in x becomes its sum over ranks; nothing to do on one rank. Returns x.
  ValueId sum_over_ranks(ValueId x);
  // Takes part in a sum over ranks of values of this width, of which this rank has no part.
  ValueId sum_of_others(std::string_view name, std::int64_t width, bool exact = false);
  // Takes part in the maxima over ranks for the inputs of a map, of which this rank has none.
  void input_maxima_of_others(const Linear& map);
  // In place; of rows whose columns are cut over ranks.
  void norm_over_ranks(const Norm& norm, std::int64_t whole_width, bool counts, ValueId x);
  ValueId gather_over_ranks(ValueId x, dist::Range columns, std::int64_t width);
  ValueId activate(const ops::ActivationSpec& spec, ValueId gate, ValueId up);

 private:
  // What the map's product reads for x, and what it rounds it by where ranks cut its rows.
  struct Inputs {
    ValueId x = ops::no_value;
    ValueId maxima = ops::no_value;
  };
  Inputs inputs_of(const Linear& map, ValueId x);
  // x no_value: of a rank that has no inputs.
  ValueId input_maxima(const Linear& map, ValueId x);
  void append_linear(const Linear& map, const Inputs& inputs, ValueId y,
                     const moe::RouterSpec* router);
  void append_adapt(const Linear& map, ValueId x, ValueId y);

  struct CosSin {
    const RopeTable* table = nullptr;
    ValueId value = ops::no_value;
  };

  ops::OpList& list_;
  ops::Context device_;
  Types types_;
  std::vector<CosSin> cos_sin_;
};

}  // namespace motley::model
