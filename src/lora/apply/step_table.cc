#include "lora/apply/step_table.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "plan/plan.h"

namespace motley::lora {
namespace {

constexpr int uploads_ahead = 4;

// For AdapterClass. Kernels for many labels take ranks up to half a rank chunk.
constexpr std::int32_t usual_ranks = kernels::rank_chunk / 2;
constexpr std::int32_t max_wide_terms = 4;

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

LaunchScope scope_of(const Batch& batch) {
  LaunchScope scope{.many_labels = batch.label_count() > kernels::few_labels};
  for (std::int32_t label = 0; label < batch.label_count(); ++label) {
    const std::span<const Batch::Term> terms = batch.terms(label);
    std::int32_t ranks = 0;
    for (const Batch::Term& term : terms) ranks += (term.adapter->largest_rank() + 7) / 8 * 8;
    scope.max_terms = std::max(scope.max_terms, static_cast<std::int32_t>(terms.size()));
    scope.max_ranks = std::max(scope.max_ranks, ranks);
  }
  return scope;
}

}  // namespace

std::optional<AdapterClass> class_of(const Batch& batch) {
  const LaunchScope scope = scope_of(batch);
  if (scope.max_terms > max_wide_terms) return std::nullopt;
  if (scope.max_terms > 1 || scope.max_ranks > usual_ranks) return AdapterClass::wide;
  return scope.many_labels ? AdapterClass::many_labels : AdapterClass::few_labels;
}

StepTable::StepTable(Pool& pool, const Limits& limits) : pool_(pool), limits_(limits) {
  const auto rows = static_cast<std::size_t>(limits.rows);
  const auto labels = static_cast<std::size_t>(limits.labels);
  // Each label, and the base, may have one group that is not full.
  const std::size_t groups = labels + 1 + rows / kernels::max_group_rows(1);
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
  // As after an upload of an empty batch.
  MOTLEY_TRY(const std::unique_ptr<tensor::Stream> stream, device.create_stream());
  static_assert(plan::no_label == -1);
  MOTLEY_TRY_VOID(stream->fill(table->table_.data(), std::byte{0}, table->bytes_));
  MOTLEY_TRY_VOID(stream->fill(table->table_.data() + table->labels_at_, std::byte{0xFF},
                               table->counts_at_ - table->labels_at_));
  MOTLEY_TRY_VOID(stream->synchronize());
  return table;
}

StepTable::~StepTable() { release(); }

void StepTable::release() {
  // Pages of the adapters are only rewritten behind their readers; an error is final for the
  // device.
  if (stream_ != nullptr) {
    static_cast<void>(pool_.mark_readers(*stream_).ok());
    static_cast<void>(stream_->synchronize().ok());
  }
  mixes_.clear();
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

  fit_to(batch);
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
      terms[count] = term.adapter->directory();
      terms[count++].scale = term.scale;
    }
  }
  std::fill(term_begin + label_count, term_begin + limits_.labels + 1,
            static_cast<std::int32_t>(count));
  std::ranges::copy(rows, labels);
  std::fill(labels + rows.size(), labels + limits_.rows, plan::no_label);
  write_groups(batch, piece.data());
  MOTLEY_TRY_VOID(staging_->send(std::move(piece), stream, table_.data(),
                                 terms_at_ + count * sizeof(kernels::AdapterTerm)));

  // All readers of the previous table have been queued, so they are marked; only then its pins may
  // be released.
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
  const std::int32_t most = kernels::max_group_rows(batch_rows_);
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

void StepTable::fit_to(const Batch& batch) {
  scope_ = scope_of(batch);
  own_sites_.clear();
  batch.add_sites(own_sites_);
  sites_ = &own_sites_;
  foresee(own_sites_);
}

void StepTable::foresee(const SiteSet& sites) {
  if (!foreseen_.covers(sites)) foreseen_.include(sites);
}

void StepTable::widen_to(AdapterClass adapter_class, std::int64_t rows, const SiteSet& sites) {
  switch (adapter_class) {
    case AdapterClass::few_labels:
    case AdapterClass::many_labels:
      scope_ = {.many_labels = adapter_class == AdapterClass::many_labels,
                .max_terms = 1,
                .max_ranks = usual_ranks};
      break;
    case AdapterClass::wide:
      scope_ = {.many_labels = true, .max_terms = max_wide_terms, .max_ranks = limits_.ranks};
      break;
  }
  sites_ = &sites;
  // The groups of rows are written for every batch with this number of rows.
  batch_rows_ = rows;
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
                            .factor_type = pool_.dtype()};
  if (labels == this->labels() && count >= batch_rows_ &&
      kernels::max_group_rows(count) == kernels::max_group_rows(batch_rows_)) {
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
