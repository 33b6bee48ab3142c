#include "lora/step_table.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "plan/plan.h"

namespace motley::lora {
namespace {

constexpr int uploads_ahead = 4;

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

StepTable::StepTable(Pool& pool, const Limits& limits) : pool_(pool), limits_(limits) {
  const auto rows = static_cast<std::size_t>(limits.rows);
  const auto labels = static_cast<std::size_t>(limits.labels);
  // One that is not full for each label, and for the base.
  const std::size_t groups = labels + 1 + rows / kernels::most_group_rows(1);
  const auto take = [&](std::size_t bytes) {
    const std::size_t at = bytes_;
    bytes_ = aligned(bytes_ + bytes);
    return at;
  };
  take((labels + 1) * sizeof(std::int32_t));
  labels_at_ = take(rows * sizeof(std::int32_t));
  counts_at_ = take(2 * sizeof(std::int32_t));
  groups_at_ = take(groups * sizeof(kernels::RowGroup));
  order_at_ = take(rows * sizeof(std::int32_t));
  terms_at_ = take(static_cast<std::size_t>(limits.terms) * sizeof(kernels::AdapterTerm));
}

Result<std::unique_ptr<StepTable>> StepTable::create(tensor::Device& device, Pool& pool,
                                                     const Limits& limits) {
  MOTLEY_CHECK(pool.options().directory, "a pool that keeps directories");
  auto table = std::unique_ptr<StepTable>(new StepTable(pool, limits));
  MOTLEY_TRY(table->table_, device.allocate(table->bytes_));
  MOTLEY_TRY(table->staging_, tensor::Staging::create(
                                  device, {.piece_bytes = table->bytes_, .pieces = uploads_ahead}));
  MOTLEY_TRY(table->rank_rows_,
             device.allocate(static_cast<std::size_t>(kernels::rank_row_numbers(limits.rows)) *
                             sizeof(float)));
  table->mixes_.reserve(static_cast<std::size_t>(limits.labels));
  table->next_row_.resize(static_cast<std::size_t>(limits.labels) + 1);
  // As it is behind an upload of an empty batch.
  MOTLEY_TRY(const std::unique_ptr<tensor::Stream> stream, device.create_stream());
  static_assert(plan::no_label == -1);
  MOTLEY_TRY_VOID(stream->fill(table->table_.data(), std::byte{0}, table->bytes_));
  MOTLEY_TRY_VOID(stream->fill(table->table_.data() + table->labels_at_, std::byte{0xFF},
                               table->counts_at_ - table->labels_at_));
  MOTLEY_TRY_VOID(stream->synchronize());
  return table;
}

StepTable::~StepTable() {
  // Pages of what it named are written behind its readers; an error is the device's end.
  if (stream_ != nullptr) {
    static_cast<void>(pool_.mark_readers(*stream_).ok());
    static_cast<void>(stream_->synchronize().ok());
  }
}

Result<void> StepTable::upload(const Batch& batch, tensor::Stream& stream) {
  if (batch.empty() && mixes_.empty()) return {};
  MOTLEY_CHECK(stream_ == nullptr || stream_ == &stream, "a table of one stream");
  stream_ = &stream;
  const std::span<const std::int32_t> rows = batch.labels();
  const auto label_count = static_cast<std::size_t>(batch.label_count());
  MOTLEY_CHECK(rows.size() <= static_cast<std::size_t>(limits_.rows) &&
                   label_count <= static_cast<std::size_t>(limits_.labels),
               "a batch within the table's limits");

  extend_reach(batch);
  MOTLEY_TRY(tensor::Staging::Piece piece, staging_->take());
  auto* const term_begin = reinterpret_cast<std::int32_t*>(piece.data());
  auto* const labels = reinterpret_cast<std::int32_t*>(piece.data() + labels_at_);
  auto* const terms = reinterpret_cast<kernels::AdapterTerm*>(piece.data() + terms_at_);
  std::size_t count = 0;
  for (std::size_t label = 0; label < label_count; ++label) {
    term_begin[label] = static_cast<std::int32_t>(count);
    for (const Batch::Term& term : batch.terms(static_cast<std::int32_t>(label))) {
      MOTLEY_CHECK(count < static_cast<std::size_t>(limits_.terms),
                   "a batch within the table's limits");
      MOTLEY_CHECK(term.adapter->pool() == &pool_, "adapters of the table's pool");
      const Directory& directory = term.adapter->directory();
      terms[count++] = {.sites = directory.sites,
                        .expert_factors = directory.expert_factors,
                        .site_layers = directory.site_layers,
                        .expert_layers = directory.expert_layers,
                        .experts = directory.experts,
                        .scale = term.scale};
    }
  }
  std::fill(term_begin + label_count, term_begin + limits_.labels + 1,
            static_cast<std::int32_t>(count));
  std::ranges::copy(rows, labels);
  std::fill(labels + rows.size(), labels + limits_.rows, plan::no_label);
  write_groups(batch, piece.data());
  MOTLEY_TRY_VOID(staging_->send(std::move(piece), stream, table_.data(),
                                 terms_at_ + count * sizeof(kernels::AdapterTerm)));

  // Whoever read the table before has been queued, and so is marked; only then its pins may go.
  MOTLEY_TRY_VOID(pool_.mark_readers(stream));
  mixes_.clear();
  for (std::size_t label = 0; label < label_count; ++label)
    mixes_.push_back(batch.mix(static_cast<std::int32_t>(label)));
  return {};
}

void StepTable::write_groups(const Batch& batch, std::byte* table) {
  const std::span<const std::int32_t> rows = batch.labels();
  const auto* const term_begin = reinterpret_cast<const std::int32_t*>(table);
  auto* const groups = reinterpret_cast<kernels::RowGroup*>(table + groups_at_);
  auto* const order = reinterpret_cast<std::int32_t*>(table + order_at_);
  batch_rows_ = std::ssize(rows);
  const std::int32_t most = kernels::most_group_rows(batch_rows_);
  auto* const counts = reinterpret_cast<std::int32_t*>(table + counts_at_);
  const auto base = static_cast<std::size_t>(batch.label_count());
  const auto place_of = [&](std::int32_t label) {
    return label == plan::no_label ? base : static_cast<std::size_t>(label);
  };
  std::ranges::fill(next_row_, 0);
  for (const std::int32_t label : rows) ++next_row_[place_of(label)];
  std::int32_t count = 0;
  std::int32_t first = 0;
  for (std::size_t label = 0; label <= base; ++label) {
    if (label == base) counts[0] = count;
    const std::int32_t end = first + next_row_[label];
    next_row_[label] = first;
    for (; first < end; first = std::min(first + most, end)) {
      groups[count++] = {.first = first,
                         .rows = std::min(most, end - first),
                         .term_begin = term_begin[label],
                         .term_end = term_begin[std::min(label + 1, base)]};
    }
  }
  counts[1] = count;
  for (std::size_t row = 0; row < rows.size(); ++row)
    order[next_row_[place_of(rows[row])]++] = static_cast<std::int32_t>(row);
}

void StepTable::extend_reach(const Batch& batch) {
  // Fewer kinds of launches where ranks differ a little: graphs are captured anew for each.
  constexpr std::int32_t rank_step = 64;
  const bool many_labels = batch.label_count() > kernels::few_labels;
  bool further = many_labels && !many_labels_;
  many_labels_ = many_labels_ || many_labels;
  for (std::int32_t label = 0; label < batch.label_count(); ++label) {
    // Few kinds of graphs here too.
    const auto terms = static_cast<std::int32_t>(std::bit_ceil(batch.terms(label).size()));
    further = further || terms > most_terms_;
    most_terms_ = std::max(most_terms_, terms);
    std::int32_t ranks = 0;
    for (const Batch::Term& term : batch.terms(label)) {
      const Resident& adapter = *term.adapter;
      ranks += (adapter.largest_rank() + 7) / 8 * 8;
      const auto at = std::ranges::lower_bound(seen_, adapter.id());
      if (at != seen_.end() && *at == adapter.id()) continue;
      seen_.insert(at, adapter.id());
      for (const SiteView& view : adapter.sites()) {
        const auto entry = static_cast<std::size_t>(entry_of(view.site));
        if (sites_.size() <= entry) sites_.resize(entry + 1, 0);
        const auto kinds =
            static_cast<std::uint8_t>(touched | (view.replaced != nullptr ? replaced : 0) |
                                      (view.gain != nullptr ? scaled : 0));
        further = further || (sites_[entry] | kinds) != sites_[entry];
        sites_[entry] |= kinds;
      }
    }
    ranks = ranks <= 16 ? 16 : (ranks + rank_step - 1) / rank_step * rank_step;
    further = further || ranks > most_ranks_;
    most_ranks_ = std::max(most_ranks_, ranks);
  }
  if (further) ++reach_;
}

bool StepTable::touches_experts(std::int32_t layer) const {
  return touches({layer, Projection::expert_gate}) || touches({layer, Projection::expert_up}) ||
         touches({layer, Projection::expert_down});
}

kernels::AdapterRows StepTable::rows(const std::int32_t* labels, std::int64_t count) const {
  kernels::AdapterRows rows{.rows = count,
                            .labels = labels,
                            .term_begin = term_begin(),
                            .terms = terms(),
                            .sites_a_layer = static_cast<std::int32_t>(projection_count),
                            .pages = pool_.dtype()};
  if (labels == this->labels() && count >= batch_rows_ &&
      kernels::most_group_rows(count) == kernels::most_group_rows(batch_rows_)) {
    rows.groups = {.counts = reinterpret_cast<const std::int32_t*>(table_.data() + counts_at_),
                   .groups = reinterpret_cast<const kernels::RowGroup*>(table_.data() + groups_at_),
                   .order = reinterpret_cast<const std::int32_t*>(table_.data() + order_at_)};
  }
  return rows;
}

const std::int32_t* StepTable::term_begin() const {
  return reinterpret_cast<const std::int32_t*>(table_.data());
}
const std::int32_t* StepTable::labels() const {
  return reinterpret_cast<const std::int32_t*>(table_.data() + labels_at_);
}
const kernels::AdapterTerm* StepTable::terms() const {
  return reinterpret_cast<const kernels::AdapterTerm*>(table_.data() + terms_at_);
}

}  // namespace motley::lora
