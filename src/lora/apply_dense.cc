#include <algorithm>
#include <array>

#include "base/check.h"
#include "lora/apply.h"
#include "lora/batch.h"
#include "lora/kernels.h"
#include "ops/context.h"
#include "tensor/arena.h"

namespace motley::lora {

namespace {

constexpr std::int64_t rank_space_bytes = std::int64_t{4} << 20;

// Numbers that a label's adapters take in rank space at a site.
std::int64_t rank_space(const Batch& batch, std::int32_t label, Site site) {
  std::int64_t sum = 0;
  for (const Batch::Term& term : batch.terms(label)) {
    const SiteView* const view = term.adapter->find(site);
    if (view != nullptr) sum += view->factors[0].padded;
  }
  return sum;
}

// Ranks [begin, end) of a row's rank space.
template <class X, class P>
void shrink_row(const Batch& batch, std::int32_t label, Site site, const X* x, std::int64_t begin,
                std::int64_t end, float* t) {
  std::int64_t first = 0;
  for (const Batch::Term& term : batch.terms(label)) {
    const SiteView* const view = term.adapter->find(site);
    if (view == nullptr) continue;
    const FactorView& factor = view->factors[0];
    const std::int64_t from = std::clamp<std::int64_t>(begin - first, 0, factor.padded);
    const std::int64_t to = std::clamp<std::int64_t>(end - first, 0, factor.padded);
    shrink<X, P>(factor, factor.scale * term.scale, x, view->in, static_cast<std::int32_t>(from),
                 static_cast<std::int32_t>(to), t + first + from);
    first += factor.padded;
  }
}

// Outputs [begin, end) of a row: acc points at output `begin`.
template <class P>
void expand_row(const Batch& batch, std::int32_t label, Site site, const float* t,
                std::int64_t begin, std::int64_t end, float* acc) {
  for (const Batch::Term& term : batch.terms(label)) {
    const SiteView* const view = term.adapter->find(site);
    if (view == nullptr) continue;
    const FactorView& factor = view->factors[0];
    if (factor.rank > 0) expand<P>(factor, t, begin, end, acc);
    t += factor.padded;
    if (view->lora_bias == nullptr) continue;
    const float scale = factor.scale * term.scale;
    for (std::int64_t o = begin; o < end; ++o) acc[o - begin] += scale * view->lora_bias[o];
  }
}

bool is_base(std::int32_t label) { return label == plan::no_label; }

}  // namespace

void dense_delta(const Batch& batch, Site site, std::span<const std::int32_t> labels,
                 const tensor::ConstTensor& x, const tensor::Tensor& acc,
                 const ops::Context& context) {
  if (!batch.touches(site)) return;
  const auto rows = static_cast<std::int64_t>(labels.size());
  std::int64_t width = 0;
  for (std::int32_t label = 0; label < batch.label_count(); ++label)
    width = std::max(width, rank_space(batch, label, site));
  if (rows == 0 || width == 0) return;
  const std::int64_t out = acc.dim(1);
  check_rows(x, rows, x.dim(1));
  check_rows(acc, rows, out);
  for (const Batch::Term& term : batch.terms(0)) {
    const SiteView* const view = term.adapter->find(site);
    MOTLEY_CHECK(view == nullptr || (view->in == x.dim(1) && view->out == out),
                 "a call of the site's own widths");
  }

  ThreadPool& pool = threads(context);
  MOTLEY_CHECK(context.scratch != nullptr, "scratch for rows in rank space");
  const std::size_t mark = context.scratch->mark();
  const std::int64_t at_once =
      std::clamp<std::int64_t>(rank_space_bytes / (width * std::int64_t{sizeof(float)}), 1, rows);
  const tensor::Tensor space =
      context.scratch->allocate(DType::f32, tensor::Shape{at_once, width}).value();
  float* const ranks = space.data<float>();
  with_type(x.dtype(), [&]<class X>(X) {
    with_type(batch.dtype(), [&]<class P>(P) {
      for (std::int64_t first = 0; first < rows; first += at_once) {
        const std::int64_t count = std::min(at_once, rows - first);
        for_row_ranges(pool, count, width, 8,
                       [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                         const std::int32_t label = labels[static_cast<std::size_t>(first + row)];
                         if (is_base(label)) return;
                         shrink_row<X, P>(batch, label, site, row_of<const X>(x, first + row),
                                          begin, end, ranks + row * width);
                       });
        for_row_ranges(pool, count, out, 256,
                       [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                         const std::int32_t label = labels[static_cast<std::size_t>(first + row)];
                         if (is_base(label)) return;
                         expand_row<P>(batch, label, site, ranks + row * width, begin, end,
                                       row_of<float>(acc, first + row) + begin);
                       });
      }
    });
  });
  context.scratch->rewind(mark);
}

namespace {

// Rows whose adapter replaces the weight get the product with its own instead.
void replace_rows(const Batch& batch, Site site, std::span<const std::int32_t> labels,
                  const tensor::ConstTensor& x, const tensor::Tensor& acc,
                  const ops::Context& context) {
  const auto replaced = [&](std::int32_t label) -> const void* {
    const SiteView* const view = batch.alone(label, site);
    return view == nullptr ? nullptr : view->replaced;
  };
  if (std::ranges::none_of(labels, [&](std::int32_t label) { return replaced(label) != nullptr; }))
    return;
  const auto rows = static_cast<std::int64_t>(labels.size());
  const std::int64_t in = x.dim(1);
  with_type(x.dtype(), [&]<class X>(X) {
    with_type(batch.dtype(), [&]<class P>(P) {
      for_row_ranges(threads(context), rows, acc.dim(1), 64,
                     [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                       const auto* const weight =
                           static_cast<const P*>(replaced(labels[static_cast<std::size_t>(row)]));
                       if (weight == nullptr) return;
                       const X* const input = row_of<const X>(x, row);
                       float* const to = row_of<float>(acc, row);
                       for (std::int64_t o = begin; o < end; ++o)
                         to[o] = dot(input, weight + o * in, in);
                     });
    });
  });
}

}  // namespace

void finish_linear(const Batch* batch, Site site, std::span<const std::int32_t> labels,
                   const tensor::ConstTensor& x, const tensor::Tensor& acc, const float* bias,
                   const tensor::Tensor& out, const ops::Context& context) {
  const std::int64_t rows = acc.dim(0);
  const std::int64_t width = acc.dim(1);
  check_rows(acc, rows, width);
  check_rows(out, rows, width);
  if (batch != nullptr && batch->empty()) batch = nullptr;
  if (batch != nullptr) {
    MOTLEY_CHECK(static_cast<std::int64_t>(labels.size()) == rows, "a label for each row");
    replace_rows(*batch, site, labels, x, acc, context);
    dense_delta(*batch, site, labels, x, acc, context);
  }
  with_type(out.dtype(), [&]<class Out>(Out) {
    for_row_ranges(threads(context), rows, width, 4096,
                   [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                     const SiteView* const special =
                         batch == nullptr
                             ? nullptr
                             : batch->alone(labels[static_cast<std::size_t>(row)], site);
                     float* const from = row_of<float>(acc, row);
                     Out* const to = row_of<Out>(out, row);
                     const float* row_bias = bias;
                     if (special != nullptr && special->replaced_bias != nullptr)
                       row_bias = special->replaced_bias;
                     if (special != nullptr && special->gain != nullptr) {
                       for (std::int64_t o = begin; o < end; ++o) from[o] *= special->gain[o];
                     }
                     if (row_bias != nullptr) {
                       for (std::int64_t o = begin; o < end; ++o)
                         to[o] = rounded<Out>(from[o] + row_bias[o]);
                     } else {
                       for (std::int64_t o = begin; o < end; ++o) to[o] = rounded<Out>(from[o]);
                     }
                   });
  });
}

namespace {

// Part [begin, end) of an embedding's row; acc is the whole row.
template <class P>
void embed_row(const Batch& batch, std::int32_t label, std::int32_t id, std::int64_t begin,
               std::int64_t end, float* acc) {
  constexpr Site site{-1, Projection::embed};
  const SiteView* const special = batch.alone(label, site);
  if (special != nullptr && special->replaced != nullptr) {
    MOTLEY_CHECK(id >= 0 && id < special->in, "a token of the vocabulary");
    const P* const row = static_cast<const P*>(special->replaced) + id * special->out;
    for (std::int64_t o = begin; o < end; ++o) acc[o] = to_float(row[o]);
  }
  // Written as far as it is read. NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init)
  std::array<float, max_rank> t;
  for (const Batch::Term& term : batch.terms(label)) {
    const SiteView* const view = term.adapter->find(site);
    if (view == nullptr) continue;
    const FactorView& factor = view->factors[0];
    if (factor.rank == 0) continue;
    MOTLEY_CHECK(id >= 0 && id < view->in, "a token of the vocabulary");
    const P* const column = static_cast<const P*>(factor.a) + std::int64_t{id} * factor.padded;
    const float scale = factor.scale * term.scale;
    for (std::int32_t r = 0; r < factor.padded; ++r)
      t[static_cast<std::size_t>(r)] = r < factor.rank ? scale * to_float(column[r]) : 0.0F;
    expand<P>(factor, t.data(), begin, end, acc + begin);
  }
}

}  // namespace

void finish_embedding(const Batch* batch, std::span<const std::int32_t> labels,
                      std::span<const std::int32_t> ids, const tensor::Tensor& acc,
                      const tensor::Tensor& out, const ops::Context& context) {
  const std::int64_t rows = acc.dim(0);
  const std::int64_t width = acc.dim(1);
  check_rows(acc, rows, width);
  check_rows(out, rows, width);
  if (batch != nullptr && !batch->touches({-1, Projection::embed})) batch = nullptr;
  if (batch != nullptr) {
    MOTLEY_CHECK(static_cast<std::int64_t>(labels.size()) == rows &&
                     static_cast<std::int64_t>(ids.size()) == rows,
                 "a label and a token for each row");
  }
  with_type(out.dtype(), [&]<class Out>(Out) {
    with_type(batch == nullptr ? DType::f32 : batch->dtype(), [&]<class P>(P) {
      for_row_ranges(threads(context), rows, width, 1024,
                     [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                       float* const from = row_of<float>(acc, row);
                       Out* const to = row_of<Out>(out, row);
                       const auto at = static_cast<std::size_t>(row);
                       if (batch != nullptr && !is_base(labels[at]))
                         embed_row<P>(*batch, labels[at], ids[at], begin, end, from);
                       for (std::int64_t o = begin; o < end; ++o) to[o] = rounded<Out>(from[o]);
                     });
    });
  });
}

}  // namespace motley::lora
