#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/cat.h"
#include "base/number_types.h"
#include "kernels/cpu/test_numbers.h"
#include "kernels/recurrence.h"

// What the tests of recurrent layers share, on every device: a layer's shape, sequences of rows,
// and slots that steps of any cut run over.
namespace motley::recurrence_tests {

using kernels::cpu::Numbers;
using kernels::cpu::poison;

// A device whose memory and kernels a test uses.
class Machine {
 public:
  virtual ~Machine() = default;
  // Memory that lasts as long as this object.
  virtual void* allocate(std::size_t bytes) = 0;
  // From and to any memory, after all work that was queued before.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual const kernels::RecurrenceTable& kernels() const = 0;
  virtual StreamHandle stream() const = 0;

  template <class T>
  T* place(std::span<const T> values) {
    T* const data = static_cast<T*>(allocate(values.size_bytes()));
    copy(data, values.data(), values.size_bytes());
    return data;
  }
};
// Of the program's device: one file for each defines them.
std::unique_ptr<Machine> open_machine();

// How a layer is computed and kept.
struct Form {
  const char* name;
  bool exact = true;
  DType keys = DType::f32;
  DType queries = DType::f32;  // to which kernels round them
  DType inputs = DType::f32;   // of the convolution
  bool betas = false;          // are in the log: the fast path, of some shapes
  // Of an output, over the sum of the magnitudes of what it is made of.
  double error = 1e-6;
};
const std::vector<Form>& forms();  // of the program's device

struct Mixer {
  const char* name;
  std::int64_t key_heads = 2;
  std::int64_t value_heads = 4;
  std::int64_t key_width = 16;
  std::int64_t value_width = 16;
  bool decay_by_key = false;
  bool corrects = true;  // has beta
  float least_decay = -2;
  float most_beta = 1;

  std::int64_t keys() const { return key_heads * key_width; }
  std::int64_t values() const { return value_heads * value_width; }
  std::int64_t decays() const { return value_heads * (decay_by_key ? key_width : 1); }
  std::int64_t channels() const { return 2 * keys() + values(); }
};

inline const std::vector<Mixer>& mixers() {
  static const std::vector<Mixer> all = {
      {.name = "delta_net"},
      {.name = "delta_net_wide",
       .key_heads = 1,
       .value_heads = 2,
       .key_width = 128,
       .value_width = 128},
      {.name = "delta_net_odd", .key_width = 24, .value_width = 20, .most_beta = 2},
      {.name = "delta_net_forgetful", .least_decay = -20},
      {.name = "vector_decay",
       .key_heads = 2,
       .value_heads = 2,
       .key_width = 32,
       .value_width = 48,
       .decay_by_key = true},
      {.name = "vector_decay_forgetful",
       .key_heads = 2,
       .value_heads = 2,
       .key_width = 19,
       .value_width = 16,
       .decay_by_key = true,
       .least_decay = -30},
      {.name = "state_space",
       .key_heads = 1,
       .value_heads = 4,
       .key_width = 64,
       .value_width = 32,
       .corrects = false,
       .least_decay = -1},
  };
  return all;
}

// Those that the fast path of a GPU serves: one, two and four value heads for each key head.
inline const std::vector<Mixer>& fast_mixers() {
  const auto mixer = [](const char* name, std::int64_t key_heads, std::int64_t value_heads,
                        float least_decay) {
    return Mixer{.name = name,
                 .key_heads = key_heads,
                 .value_heads = value_heads,
                 .key_width = 128,
                 .value_width = 128,
                 .least_decay = least_decay};
  };
  static const std::vector<Mixer> all = {mixer("one_to_one", 1, 1, -0.1F),
                                         mixer("one_to_two", 2, 4, -2),
                                         mixer("one_to_four", 1, 4, -20)};
  return all;
}

constexpr std::int64_t conv_taps = 4;

// Rows of a sequence: inputs of the recurrence and of the convolution.
struct InputRows {
  std::int64_t count = 0;
  std::vector<float> q, k, v, g, beta, x;
};
constexpr std::vector<float> InputRows::* input_fields[] = {
    &InputRows::q, &InputRows::k, &InputRows::v, &InputRows::g, &InputRows::beta, &InputRows::x};

// Rows [first, end) of one sequence in place of another's.
inline void copy_rows(const InputRows& from, std::int64_t first, std::int64_t end, InputRows& to) {
  for (const auto field : input_fields) {
    const std::int64_t width = static_cast<std::int64_t>((from.*field).size()) / from.count;
    std::copy((from.*field).begin() + first * width, (from.*field).begin() + end * width,
              (to.*field).begin() + first * width);
  }
}

// Rows from `first` on are no numbers, as after an overflow.
inline void spoil_rows(std::int64_t first, InputRows& rows) {
  for (const auto field : input_fields) {
    std::vector<float>& numbers = rows.*field;
    const std::int64_t width = static_cast<std::int64_t>(numbers.size()) / rows.count;
    std::fill(numbers.begin() + first * width, numbers.end(), poison);
  }
}

// What finite numbers of a draft may overflow to on the way.
enum class Overflow { values, keys, both, queries, betas, infinite_values };
constexpr Overflow overflows[] = {Overflow::values,  Overflow::keys,  Overflow::both,
                                  Overflow::queries, Overflow::betas, Overflow::infinite_values};
// Rows from `first` on have numbers near the largest of float32, of both signs.
inline void overflow_rows(std::int64_t first, Overflow kind, InputRows& rows) {
  const auto fill = [&](std::vector<float>& numbers, float number) {
    const auto begin =
        numbers.size() / static_cast<std::size_t>(rows.count) * static_cast<std::size_t>(first);
    for (std::size_t i = begin; i < numbers.size(); ++i)
      numbers[i] = i % 3 == 0 && &numbers != &rows.beta ? -number : number;
  };
  constexpr float large = 3.2e38F;
  if (kind == Overflow::values || kind == Overflow::both) fill(rows.v, large);
  if (kind == Overflow::keys) fill(rows.k, large);
  if (kind == Overflow::both) fill(rows.k, 1e19F);
  if (kind == Overflow::queries) fill(rows.q, large);
  if (kind == Overflow::betas) fill(rows.beta, large);
  if (kind == Overflow::infinite_values) fill(rows.v, std::numeric_limits<float>::infinity());
}

inline InputRows make_rows(const Mixer& mixer, std::int64_t count, std::uint64_t seed) {
  Numbers numbers(seed);
  InputRows rows{.count = count};
  // Keys and queries of length one, as delta nets have them.
  const auto directions = [&] {
    std::vector<float> all = numbers.floats(count * mixer.keys(), -1, 1);
    for (std::size_t at = 0; at < all.size(); at += static_cast<std::size_t>(mixer.key_width)) {
      double squares = 0;
      for (std::int64_t i = 0; i < mixer.key_width; ++i)
        squares += std::pow(static_cast<double>(all[at + static_cast<std::size_t>(i)]), 2);
      for (std::int64_t i = 0; i < mixer.key_width; ++i)
        all[at + static_cast<std::size_t>(i)] /= static_cast<float>(std::sqrt(squares));
    }
    return all;
  };
  rows.q = directions();
  rows.k = directions();
  rows.v = numbers.floats(count * mixer.values(), -1, 1);
  rows.g = numbers.floats(count * mixer.decays(), mixer.least_decay, 0);
  // Some that keep everything.
  for (std::size_t i = 0; i < rows.g.size(); i += 5) rows.g[i] = 0;
  rows.beta = numbers.floats(count * mixer.value_heads, 0, mixer.most_beta);
  rows.x = numbers.floats(count * mixer.channels(), -1, 1);
  return rows;
}

struct Outputs {
  std::vector<float> mixed;      // [rows, values]
  std::vector<float> convolved;  // [rows, channels]
};

// Where a sequence stands.
struct Place {
  std::int32_t slot = 0;
  std::int64_t length = 0;  // accepted rows
  std::int64_t anchor = 0;
};

// Rows [place.length, place.length + count) of a sequence in a step, the last `uncertain` of which
// may be taken back.
struct Piece {
  Place* place;
  const InputRows* rows;
  std::int64_t count;
  std::int64_t uncertain = 0;
};

// An array on the machine, as large as any that it held.
template <class T>
class Growing {
 public:
  const T* write(Machine& machine, std::span<const T> values) {
    reserve(machine, values.size());
    machine.copy(data_, values.data(), values.size_bytes());
    return data_;
  }
  T* poisoned(Machine& machine, std::int64_t count) {
    const std::vector<T> values(static_cast<std::size_t>(count), poison);
    write(machine, values);
    return data_;
  }
  std::vector<T> read(Machine& machine, std::int64_t count) const {
    std::vector<T> values(static_cast<std::size_t>(count));
    machine.copy(values.data(), data_, values.size() * sizeof(T));
    return values;
  }

 private:
  void reserve(Machine& machine, std::size_t count) {
    if (data_ != nullptr && count <= room_) return;
    room_ = std::max<std::size_t>(2 * count, 64);
    data_ = static_cast<T*>(machine.allocate(room_ * sizeof(T)));
  }

  T* data_ = nullptr;
  std::size_t room_ = 0;
};

class Slots {
 public:
  Slots(const Mixer& mixer, const Form& form, std::int64_t slots,
        std::unique_ptr<Machine> machine = open_machine())
      : mixer_(mixer), form_(form), slots_(slots), machine_(std::move(machine)) {
    const auto place = [this](std::int64_t numbers, DType type = DType::f32) {
      const std::int64_t at = slot_size_;
      // Aligned as the runner's.
      slot_size_ += (numbers * bits(type) / 32 + 63) / 64 * 64;
      return at;
    };
    anchors_ = place(anchor_size());
    history_ = place(history_size(), form.inputs);
    snapshot_size_ = slot_size_;
    keys_ = place(kernels::state_log_rows * mixer.keys(), form.keys);
    updates_ = place(kernels::state_log_rows * mixer.values());
    decays_ = place(kernels::state_log_rows * mixer.decays());
    if (form.betas) betas_ = place(kernels::state_log_rows * mixer.value_heads);
    inputs_ = place(kernels::convolution_log_rows * mixer.channels(), form.inputs);
    memory_ = machine_->place<float>(
        std::vector<float>(static_cast<std::size_t>(slots * slot_size_), poison));
    const std::vector<float> all_weights = weight();
    const std::vector<float> all_biases = bias();
    weights_ = machine_->place<float>(all_weights);
    biases_ = machine_->place<float>(all_biases);
  }

  // Moves each place to the end of its piece's certain rows; the caller accepts more of them.
  // Returns the rows' outputs, piece by piece. `bounds`: what launches know of the rows, as a
  // captured graph's; rows behind those of the pieces are padding.
  struct Bounds {
    std::int64_t padding = 0;
    std::int64_t max_rows = 0;
  };
  Outputs step(const std::vector<Piece>& pieces, const Bounds& bounds = {0, 0}) {
    InputRows all;
    std::vector<std::int32_t> begin = {0}, positions, slots, anchors, certain;
    for (const Piece& piece : pieces) {
      const std::int64_t from = piece.place->length;
      for (const auto field : input_fields) {
        const std::vector<float>& rows = piece.rows->*field;
        const std::int64_t width = static_cast<std::int64_t>(rows.size()) / piece.rows->count;
        (all.*field)
            .insert((all.*field).end(), rows.begin() + from * width,
                    rows.begin() + (from + piece.count) * width);
      }
      for (std::int64_t i = 0; i < piece.count; ++i)
        positions.push_back(static_cast<std::int32_t>(from + i));
      begin.push_back(static_cast<std::int32_t>(positions.size()));
      slots.push_back(piece.place->slot);
      anchors.push_back(static_cast<std::int32_t>(piece.place->anchor));
      certain.push_back(static_cast<std::int32_t>(piece.count - piece.uncertain));
    }
    const auto rows = static_cast<std::int64_t>(positions.size());
    Machine& m = *machine_;
    const auto write = [&m](auto& array, const auto& values) {
      return array.write(m, std::span(values));
    };
    const kernels::StateSteps steps{.rows = {.count = static_cast<std::int64_t>(pieces.size()),
                                             .seq_begin = write(arrays_.begin, begin),
                                             .positions = write(arrays_.positions, positions),
                                             .rows = rows + bounds.padding,
                                             .max_rows = bounds.max_rows},
                                    .slots = write(arrays_.slots, slots),
                                    .anchors = write(arrays_.anchors, anchors),
                                    .certain = write(arrays_.certain, certain)};
    const float* const beta = write(arrays_.beta, all.beta);
    m.kernels().recur({.key_heads = mixer_.key_heads,
                       .value_heads = mixer_.value_heads,
                       .key_width = mixer_.key_width,
                       .value_width = mixer_.value_width,
                       .decay_by_key = mixer_.decay_by_key,
                       .q = write(arrays_.q, all.q),
                       .q_stride = mixer_.keys(),
                       .k = write(arrays_.k, all.k),
                       .k_stride = mixer_.keys(),
                       .v = write(arrays_.v, all.v),
                       .v_stride = mixer_.values(),
                       .g = write(arrays_.g, all.g),
                       .g_stride = mixer_.decays(),
                       .beta = mixer_.corrects ? beta : nullptr,
                       .beta_stride = mixer_.value_heads,
                       .out = arrays_.mixed.poisoned(m, rows * mixer_.values()),
                       .out_stride = mixer_.values(),
                       .steps = steps,
                       .memory = {.anchors = memory_ + anchors_,
                                  .keys = memory_ + keys_,
                                  .key_type = form_.keys,
                                  .updates = memory_ + updates_,
                                  .decays = memory_ + decays_,
                                  .betas = form_.betas ? memory_ + betas_ : nullptr,
                                  .slot_stride = slot_size_},
                       .exact = form_.exact},
                      m.stream());
    m.kernels().convolve({.channels = mixer_.channels(),
                          .taps = conv_taps,
                          .weight = weights_,
                          .bias = biases_,
                          .silu = true,
                          .x = write(arrays_.x, all.x),
                          .x_stride = mixer_.channels(),
                          .out = arrays_.convolved.poisoned(m, rows * mixer_.channels()),
                          .out_stride = mixer_.channels(),
                          .steps = steps,
                          .memory = {.inputs = memory_ + inputs_,
                                     .history = memory_ + history_,
                                     .type = form_.inputs,
                                     .slot_stride = slot_size_}},
                         m.stream());
    for (const Piece& piece : pieces) {
      if (piece.count == 0) continue;
      const std::int64_t kept = piece.count - piece.uncertain;
      piece.place->anchor = kernels::anchor_after(piece.place->length, kept);
      piece.place->length += kept;
    }
    return {.mixed = arrays_.mixed.read(m, rows * mixer_.values()),
            .convolved = arrays_.convolved.read(m, rows * mixer_.channels())};
  }

  // A fork: anchor and log.
  void copy(std::int32_t from, std::int32_t to) { write_slot(read_slot(from), to); }

  // A snapshot: the anchor, and what stands before it. Its position is the anchor's.
  std::vector<float> snapshot(std::int32_t slot) const {
    std::vector<float> all = read_slot(slot);
    all.resize(static_cast<std::size_t>(snapshot_size_));
    return all;
  }
  // Into a slot whose memory is poison.
  void restore(const std::vector<float>& all, std::int32_t to) {
    std::vector<float> whole(static_cast<std::size_t>(slot_size_), poison);
    std::ranges::copy(all, whole.begin());
    write_slot(whole, to);
  }
  // All that is kept, as it stands in memory.
  std::vector<float> memory() const {
    std::vector<float> all(static_cast<std::size_t>(slots_ * slot_size_));
    machine_->copy(all.data(), memory_, all.size() * sizeof(float));
    return all;
  }

  std::vector<float> weight() const {
    return Numbers(91).floats(mixer_.channels() * conv_taps, -1, 1);
  }
  std::vector<float> bias() const { return Numbers(92).floats(mixer_.channels(), -1, 1); }

 private:
  std::int64_t anchor_size() const {
    return mixer_.value_heads * mixer_.key_width * mixer_.value_width;
  }
  std::int64_t history_size() const { return (conv_taps - 1) * mixer_.channels(); }
  std::vector<float> read_slot(std::int32_t slot) const {
    std::vector<float> all(static_cast<std::size_t>(slot_size_));
    machine_->copy(all.data(), memory_ + slot * slot_size_, all.size() * sizeof(float));
    return all;
  }
  void write_slot(const std::vector<float>& all, std::int32_t slot) {
    machine_->copy(memory_ + slot * slot_size_, all.data(), all.size() * sizeof(float));
  }

  Mixer mixer_;
  Form form_;
  std::int64_t slots_;
  std::unique_ptr<Machine> machine_;
  float* memory_ = nullptr;  // [slots, slot_size_]
  const float* weights_ = nullptr;
  const float* biases_ = nullptr;
  std::int64_t slot_size_ = 0;
  std::int64_t snapshot_size_ = 0;  // what snapshots hold stands first
  // Where arrays begin in a slot, in float32 numbers.
  std::int64_t anchors_, history_, keys_, updates_, decays_, betas_ = 0, inputs_;
  struct {
    Growing<std::int32_t> begin, positions, slots, anchors, certain;
    Growing<float> q, k, v, g, beta, x, mixed, convolved;
  } arrays_;
};

// A number as a kernel reads it that rounds it to a type.
inline double rounded(float value, DType type) {
  return static_cast<double>(type == DType::bf16 ? bf16::from(value).to_float() : value);
}

// A layer in a form, as a parameter of tests.
struct Layer {
  Mixer mixer;
  Form form;
};
inline std::vector<Layer> layers() {
  std::vector<Layer> all;
  for (const Form& form : forms())
    for (const Mixer& mixer : form.betas ? fast_mixers() : mixers())
      all.push_back({.mixer = mixer, .form = form});
  return all;
}
inline std::string name_of(const Layer& layer) {
  return cat(layer.mixer.name, "_", layer.form.name);
}

}  // namespace motley::recurrence_tests
