#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/cat.h"
#include "kernels/cpu/recurrence.h"
#include "kernels/cpu/test_numbers.h"

// What the tests of recurrent layers share: a layer's shape, sequences of rows, and slots that
// steps of any cut run over.
namespace motley::kernels::cpu {

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

class Slots {
 public:
  Slots(const Mixer& mixer, std::int64_t slots, InstructionSet set, StreamHandle stream = {})
      : mixer_(mixer), set_(set), stream_(stream) {
    const auto place = [this](std::int64_t numbers) {
      const std::int64_t at = slot_size_;
      slot_size_ += numbers;
      return at;
    };
    anchors_ = place(anchor_size());
    history_ = place(history_size());
    snapshot_size_ = slot_size_;
    keys_ = place(state_log_rows * mixer.keys());
    updates_ = place(state_log_rows * mixer.values());
    decays_ = place(state_log_rows * mixer.decays());
    inputs_ = place(convolution_log_rows * mixer.channels());
    memory_.assign(static_cast<std::size_t>(slots * slot_size_), poison);
  }

  // Moves each place to the end of its piece's certain rows; the caller accepts more of them.
  // Returns the rows' outputs, piece by piece.
  Outputs step(const std::vector<Piece>& pieces) {
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
    Outputs out;
    out.mixed.assign(static_cast<std::size_t>(rows * mixer_.values()), poison);
    out.convolved.assign(static_cast<std::size_t>(rows * mixer_.channels()), poison);
    const StateSteps steps{.rows = {.count = static_cast<std::int64_t>(pieces.size()),
                                    .seq_begin = begin.data(),
                                    .positions = positions.data(),
                                    .rows = rows},
                           .slots = slots.data(),
                           .anchors = anchors.data(),
                           .certain = certain.data()};
    recur({.key_heads = mixer_.key_heads,
           .value_heads = mixer_.value_heads,
           .key_width = mixer_.key_width,
           .value_width = mixer_.value_width,
           .decay_by_key = mixer_.decay_by_key,
           .q = all.q.data(),
           .q_stride = mixer_.keys(),
           .k = all.k.data(),
           .k_stride = mixer_.keys(),
           .v = all.v.data(),
           .v_stride = mixer_.values(),
           .g = all.g.data(),
           .g_stride = mixer_.decays(),
           .beta = mixer_.corrects ? all.beta.data() : nullptr,
           .beta_stride = mixer_.value_heads,
           .out = out.mixed.data(),
           .out_stride = mixer_.values(),
           .steps = steps,
           .memory = {.anchors = memory_.data() + anchors_,
                      .keys = memory_.data() + keys_,
                      .updates = memory_.data() + updates_,
                      .decays = memory_.data() + decays_,
                      .slot_stride = slot_size_}},
          stream_, set_);
    convolve({.channels = mixer_.channels(),
              .taps = conv_taps,
              .weight = weight().data(),
              .bias = bias().data(),
              .silu = true,
              .x = all.x.data(),
              .x_stride = mixer_.channels(),
              .out = out.convolved.data(),
              .out_stride = mixer_.channels(),
              .steps = steps,
              .memory = {.inputs = memory_.data() + inputs_,
                         .history = memory_.data() + history_,
                         .slot_stride = slot_size_}},
             stream_, set_);
    for (const Piece& piece : pieces) {
      if (piece.count == 0) continue;
      const std::int64_t kept = piece.count - piece.uncertain;
      piece.place->anchor = anchor_after(piece.place->length, kept);
      piece.place->length += kept;
    }
    return out;
  }

  // A fork: anchor and log.
  void copy(std::int32_t from, std::int32_t to) { std::copy_n(slot(from), slot_size_, slot(to)); }

  // A snapshot: the anchor, and what stands before it. Its position is the anchor's.
  std::vector<float> snapshot(std::int32_t slot) const {
    const auto first = memory_.begin() + slot * slot_size_;
    return {first, first + snapshot_size_};
  }
  // Into a slot whose memory is poison.
  void restore(const std::vector<float>& all, std::int32_t to) {
    std::fill_n(slot(to), slot_size_, poison);
    std::ranges::copy(all, slot(to));
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
  std::vector<float>::iterator slot(std::int32_t number) {
    return memory_.begin() + number * slot_size_;
  }

  Mixer mixer_;
  InstructionSet set_;
  StreamHandle stream_;
  std::vector<float> memory_;  // [slots, slot_size_]
  std::int64_t slot_size_ = 0;
  std::int64_t snapshot_size_ = 0;  // what snapshots hold stands first
  // Where arrays begin in a slot.
  std::int64_t anchors_, history_, keys_, updates_, decays_, inputs_;
};

}  // namespace motley::kernels::cpu
