#include "runner/step_layout.h"

#include <algorithm>

#include "base/check.h"
#include "plan/plan.h"

namespace motley::runner {
namespace {

constexpr int uploads_ahead = 4;
// With more ranges than this, everything from the first to the last is copied at once.
constexpr std::size_t max_copies = 8;

}  // namespace

StepLayout::StepLayout(const Limits& limits, tensor::Buffer memory,
                       std::unique_ptr<tensor::Staging> staging)
    : limits_(limits),
      table_width_(KvMemory::pages_for(limits.tokens)),
      memory_(std::move(memory)),
      staging_(std::move(staging)),
      adapters_(limits.rank) {
  const auto rows = static_cast<std::size_t>(limits.rows);
  const auto sequences = static_cast<std::size_t>(limits.sequences);
  for (std::vector<std::int32_t>* const numbers :
       {&tokens_, &positions_, &labels_, &places_, &logit_labels_})
    numbers->reserve(rows);
  mixes_.reserve(rows);
  logit_rows_.reserve(rows);
  seq_begin_.reserve(sequences + 1);
  constexpr std::size_t max_parts = 3;
  parts_.reserve(max_parts);
  position_begin_.reserve(sequences + 1);
  for (std::vector<std::int32_t>* const numbers : {&slots_, &anchors_, &certain_})
    numbers->reserve(sequences);
  block_table_.assign(sequences * static_cast<std::size_t>(table_width_), -1);
  changes_.reserve(sequences);
}

Result<StepLayout> StepLayout::create(tensor::Device& device, const Limits& limits) {
  const std::int64_t numbers = 5 * limits.rows + 2 * (limits.sequences + 1) +
                               limits.sequences * (3 + KvMemory::pages_for(limits.tokens));
  const std::size_t bytes = static_cast<std::size_t>(numbers) * sizeof(std::int32_t);
  MOTLEY_TRY(tensor::Buffer memory, device.allocate(bytes));
  MOTLEY_TRY(std::unique_ptr<tensor::Staging> staging,
             tensor::Staging::create(device, {.piece_bytes = bytes, .pieces = uploads_ahead}));
  return StepLayout(limits, std::move(memory), std::move(staging));
}

void StepLayout::build(std::span<const Chunk> chunks) {
  MOTLEY_CHECK(static_cast<std::int64_t>(chunks.size()) <= limits_.sequences,
               "a step of at most max_sequences chunks");
  tokens_.clear();
  positions_.clear();
  mixes_.clear();
  logit_rows_.clear();
  places_.clear();
  seq_begin_.assign(1, 0);
  changes_.clear();
  slots_.clear();
  anchors_.clear();
  certain_.clear();
  max_rows_ = 0;
  least_rows_ = chunks.empty() ? 0 : limits_.rows;
  decodes_ = true;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const Chunk& chunk = chunks[c];
    const auto count = static_cast<std::int64_t>(chunk.tokens.size());
    MOTLEY_CHECK(count > 0 && chunk.length + count <= limits_.tokens,
                 "a chunk with tokens, in a sequence that stays within max_tokens");
    const std::int64_t pages = KvMemory::pages_for(chunk.length + count);
    MOTLEY_CHECK(pages <= static_cast<std::int64_t>(chunk.pages.size()),
                 "pages for all tokens of a chunk's sequence");
    set_pages(c, chunk.pages.first(static_cast<std::size_t>(pages)));
    max_rows_ = std::max(max_rows_, count);
    least_rows_ = std::min(least_rows_, count);
    decodes_ = decodes_ && chunk.decodes();
    for (std::size_t t = 0; t < chunk.tokens.size(); ++t) {
      const bool wanted = (chunk.logits == LogitsOf::all && t >= chunk.first_logits) ||
                          (chunk.logits == LogitsOf::last && t + 1 == chunk.tokens.size());
      if (wanted) {
        logit_rows_.push_back({.chunk = c, .token = t});
        places_.push_back(static_cast<std::int32_t>(tokens_.size()));
      }
      tokens_.push_back(chunk.tokens[t]);
      positions_.push_back(static_cast<std::int32_t>(chunk.length + static_cast<std::int64_t>(t)));
      mixes_.push_back(chunk.mix);
    }
    seq_begin_.push_back(static_cast<std::int32_t>(tokens_.size()));
    slots_.push_back(chunk.state.slot);
    anchors_.push_back(static_cast<std::int32_t>(chunk.state.anchor));
    certain_.push_back(static_cast<std::int32_t>(chunk.state.certain));
  }
  MOTLEY_CHECK(rows() <= limits_.rows, "a step of at most max_rows rows");
  choose_parts();
  adapters_.build(mixes_);
  labels_.assign(adapters_.labels().begin(), adapters_.labels().end());
  logit_labels_.clear();
  for (const std::int32_t place : places_)
    logit_labels_.push_back(labels_[static_cast<std::size_t>(place)]);
}

std::int64_t StepLayout::rows_of(std::int64_t sequence) const {
  const auto at = static_cast<std::size_t>(sequence);
  return seq_begin_[at + 1] - seq_begin_[at];
}

std::int64_t StepLayout::positions_of(std::int64_t sequence) const {
  return positions_[static_cast<std::size_t>(seq_begin_[static_cast<std::size_t>(sequence) + 1]) -
                    1] +
         1;
}

model::StepPart StepLayout::part_of(std::int64_t first_sequence, std::int64_t end_sequence) const {
  const std::int64_t first_row = seq_begin_[static_cast<std::size_t>(first_sequence)];
  model::StepPart part{.first_sequence = first_sequence,
                       .sequences = end_sequence - first_sequence,
                       .first_row = first_row,
                       .rows = seq_begin_[static_cast<std::size_t>(end_sequence)] - first_row,
                       .least_rows = limits_.rows};
  for (std::int64_t s = first_sequence; s < end_sequence; ++s) {
    part.max_rows = std::max(part.max_rows, rows_of(s));
    part.least_rows = std::min(part.least_rows, rows_of(s));
  }
  return part;
}

// Chooses the adjacent sequences that save most together and whose positions fit in memory.
void StepLayout::choose_parts() {
  parts_.clear();
  position_begin_.clear();
  if (limits_.second_form == nullptr || decodes_) return;
  struct Run {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t positions = 0;
    std::int64_t saved = 0;
  };
  Run best;
  Run run;
  const auto saved_by = [&](std::int64_t sequence) {
    return limits_.second_form->saved_by_second_form(rows_of(sequence), positions_of(sequence));
  };
  for (std::int64_t s = 0; s < sequences(); ++s) {
    if (run.saved <= 0) run = {.begin = s};
    run.end = s + 1;
    run.positions += positions_of(s);
    run.saved += saved_by(s);
    for (; run.positions > limits_.positions; ++run.begin) {
      run.positions -= positions_of(run.begin);
      run.saved -= saved_by(run.begin);
    }
    if (run.saved > best.saved) best = run;
  }
  if (best.saved <= 0) return;
  if (best.begin > 0) parts_.push_back(part_of(0, best.begin));
  model::StepPart chosen = part_of(best.begin, best.end);
  chosen.form = ops::second_form;
  chosen.positions = best.positions;
  position_begin_.push_back(0);
  for (std::int64_t s = best.begin; s < best.end; ++s) {
    chosen.max_positions = std::max(chosen.max_positions, positions_of(s));
    position_begin_.push_back(position_begin_.back() + static_cast<std::int32_t>(positions_of(s)));
  }
  parts_.push_back(chosen);
  if (best.end < sequences()) parts_.push_back(part_of(best.end, sequences()));
}

void StepLayout::set_pages(std::size_t sequence, std::span<const std::int32_t> pages) {
  const std::size_t row = sequence * static_cast<std::size_t>(table_width_);
  const auto [differs, known] = std::mismatch(
      pages.begin(), pages.end(), block_table_.begin() + static_cast<std::ptrdiff_t>(row));
  if (differs == pages.end()) return;
  std::copy(differs, pages.end(), known);
  changes_.push_back({.begin = row + static_cast<std::size_t>(differs - pages.begin()),
                      .end = row + pages.size()});
}

void StepLayout::pad_to(std::int64_t rows) {
  MOTLEY_CHECK(decodes_ && rows <= std::min(limits_.rows, limits_.sequences),
               "rows that the device has room for");
  const auto count = static_cast<std::size_t>(rows);
  seq_begin_.resize(count + 1, seq_begin_.back());
  tokens_.resize(count, 0);
  positions_.resize(count, 0);
  labels_.resize(count, plan::no_label);
  for (std::vector<std::int32_t>* const numbers : {&slots_, &anchors_, &certain_})
    numbers->resize(count, 0);
  max_rows_ = 1;
  least_rows_ = 0;
}

Result<void> StepLayout::upload(tensor::Stream& stream) {
  MOTLEY_TRY(tensor::Staging::Piece piece, staging_->take());
  auto* const to = reinterpret_cast<std::int32_t*>(piece.data());
  std::ranges::copy(tokens_, to);
  std::ranges::copy(positions_, to + limits_.rows);
  std::ranges::copy(labels_, to + 2 * limits_.rows);
  std::ranges::copy(places_, to + 3 * limits_.rows);
  std::ranges::copy(logit_labels_, to + 4 * limits_.rows);
  std::ranges::copy(seq_begin_, to + 5 * limits_.rows);
  std::ranges::copy(position_begin_, to + 5 * limits_.rows + limits_.sequences + 1);
  std::ranges::copy(slots_, to + states_at());
  std::ranges::copy(anchors_, to + states_at() + limits_.sequences);
  std::ranges::copy(certain_, to + states_at() + 2 * limits_.sequences);
  if (changes_.size() > max_copies)
    changes_.assign(1, {.begin = changes_.front().begin, .end = changes_.back().end});
  for (const Range& range : changes_) {
    const std::size_t at = static_cast<std::size_t>(table_at()) + range.begin;
    std::copy(block_table_.begin() + static_cast<std::ptrdiff_t>(range.begin),
              block_table_.begin() + static_cast<std::ptrdiff_t>(range.end), to + at);
    MOTLEY_TRY_VOID(stream.copy(memory_.data() + at * sizeof(std::int32_t), to + at,
                                (range.end - range.begin) * sizeof(std::int32_t)));
  }
  // The staging piece is free again after its last copy.
  return staging_->send(std::move(piece), stream, memory_.data(),
                        static_cast<std::size_t>(table_at()) * sizeof(std::int32_t));
}

void StepLayout::clear() {
  mixes_.clear();
  adapters_.clear();
}

tensor::ConstTensor StepLayout::block_table() const {
  return memory_.view(DType::i32, {limits_.sequences, table_width_},
                      static_cast<std::size_t>(table_at()) * sizeof(std::int32_t));
}

}  // namespace motley::runner
