#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/forward/builder.h"
#include "model/linear.h"
#include "model/step.h"

namespace motley::model {

struct MoeBlock;

// Maps of one x, which a step computes together.
struct MapGroup {
  std::string_view part;  // of the model, for reports: "attention"
  std::vector<const Linear*> maps;
  bool per_head = false;  // products of heads, not of rows
};

// A part of a layer, from rows to rows of the same width. Whatever the rest of the program wants to
// know of a layer it asks here, so that a new kind of block is new files.
class Block {
 public:
  Block() = default;
  Block(const Block&) = default;
  Block(Block&&) = default;
  Block& operator=(const Block&) = default;
  Block& operator=(Block&&) = default;
  virtual ~Block() = default;

  // In order of the forward pass; without routed experts.
  virtual std::vector<MapGroup> maps() const = 0;
  // Norms' weights and the like.
  virtual std::vector<const Vector*> vectors() const = 0;
  // Wherever in the block they stand.
  virtual std::vector<const MoeBlock*> moe_blocks() const = 0;
  // x [R, hidden] -> the block's result [R, hidden] in f32, summed over ranks.
  virtual ValueId append(ValueId x, Builder& pass) const = 0;
};

// Steps of equal sequences: each adds `tokens` to `length` earlier ones.
struct EqualSequences {
  std::int64_t sequences = 1;
  std::int64_t tokens = 1;
  std::int64_t length = 0;
};

// The block of a layer in which rows of a sequence meet: attention, or a recurrence.
class Mixer : public Block {
 public:
  // for_each_moe() does not look for them here.
  std::vector<const MoeBlock*> moe_blocks() const final { return {}; }
  // What it keeps for each token, and for each sequence.
  virtual TokenCaches kept_per_token() const = 0;
  virtual StateShape kept_per_sequence() const = 0;
  // For the scratch of steps with so many sequences.
  virtual kernels::AttentionShape attention_shape(std::int64_t sequences) const = 0;

  // The least that a step costs beside the maps.
  struct Cost {
    double operations = 0;
    double tokens_read = 0;  // of which all of kept_per_token() is read
    double states_read = 0;  // anchors, without logs
  };
  virtual Cost cost(const EqualSequences& step) const = 0;

  // A mixer may have a second form of its ops (ops::Form), which is faster for a piece of a prompt
  // that is long compared with what precedes it, and takes memory for all positions of its
  // sequences. Whether it has one on this device:
  virtual bool has_second_form(const ops::Context& device) const;
  // The most positions at once, for steps with so many rows and sequences of so many tokens.
  virtual std::int64_t max_positions(std::int64_t rows, std::int64_t tokens) const;
  // The time that it saves for a sequence, in any unit; negative where the first form is faster.
  virtual std::int64_t saved_by_second_form(std::int64_t rows, std::int64_t positions) const;
};

}  // namespace motley::model
