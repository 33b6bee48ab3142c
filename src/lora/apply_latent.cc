// kv_b of MLA in absorbed form: its output is, for each head, dn key rows and then dv value rows,
// and neither product with it is ever made for a cached token.

#include <array>

#include "base/check.h"
#include "lora/apply.h"
#include "lora/batch.h"
#include "lora/kernels.h"

namespace motley::lora {

namespace {

void check_heads(const tensor::ConstTensor& tensor, std::size_t rows) {
  MOTLEY_CHECK(tensor.shape().rank() == 3 && tensor.dim(0) == static_cast<std::int64_t>(rows) &&
                   (tensor.dim(2) == 1 || tensor.stride(2) == 1),
               "[rows, heads, width] with contiguous heads");
}

template <class T, class Byte>
T* head_of(const tensor::BasicTensor<Byte>& tensor, std::int64_t row, std::int64_t head) {
  return tensor.template data<std::remove_const_t<T>>() + row * tensor.stride(0) +
         head * tensor.stride(1);
}

// Calls body(row, head, label) for each row that has an adapter.
template <class Body>
void for_heads(const Batch& batch, Site site, std::span<const std::int32_t> labels,
               std::int64_t heads, const ops::Context& context, Body body) {
  if (labels.empty() || !batch.touches(site)) return;
  const auto rows = static_cast<std::int64_t>(labels.size());
  threads(context).for_ranges(rows * heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int32_t label = labels[static_cast<std::size_t>(i / heads)];
      if (label != plan::no_label) body(i / heads, i % heads, label);
    }
  });
}

}  // namespace

void kv_b_scale_queries(const Batch& batch, std::int32_t layer,
                        std::span<const std::int32_t> labels, const tensor::Tensor& q_nope,
                        const ops::Context& context) {
  const Site site{layer, Projection::kv_b};
  check_heads(q_nope, labels.size());
  const std::int64_t heads = q_nope.dim(1);
  with_type(q_nope.dtype(), [&]<class X>(X) {
    for_heads(batch, site, labels, heads, context,
              [&](std::int64_t row, std::int64_t head, std::int32_t label) {
                const SiteView* const view = batch.alone(label, site);
                if (view == nullptr || view->gain == nullptr) return;
                const float* const gain = view->gain + head * (view->out / heads);
                X* const q = head_of<X>(q_nope, row, head);
                for (std::int64_t d = 0; d < q_nope.dim(2); ++d)
                  q[d] = rounded<X>(to_float(q[d]) * gain[d]);
              });
  });
}

void kv_b_key_delta(const Batch& batch, std::int32_t layer, std::span<const std::int32_t> labels,
                    const tensor::ConstTensor& q_nope, const tensor::Tensor& q_latent,
                    const ops::Context& context) {
  const Site site{layer, Projection::kv_b};
  check_heads(q_nope, labels.size());
  check_heads(q_latent, labels.size());
  const std::int64_t heads = q_nope.dim(1);
  const std::int64_t width = q_nope.dim(2);
  // A bias behind B adds the same to a query's score of every key, which the softmax takes away.
  with_type(q_nope.dtype(), [&]<class X>(X) {
    with_type(batch.dtype(), [&]<class P>(P) {
      for_heads(batch, site, labels, heads, context,
                [&](std::int64_t row, std::int64_t head, std::int32_t label) {
                  // Written as far as it is read.
                  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init)
                  std::array<float, max_rank> t;
                  const X* const q = head_of<const X>(q_nope, row, head);
                  float* const latent = head_of<float>(q_latent, row, head);
                  for (const Batch::Term& term : batch.terms(label)) {
                    const SiteView* const view = term.adapter->find(site);
                    if (view == nullptr || view->factors[0].rank == 0) continue;
                    const FactorView& factor = view->factors[0];
                    MOTLEY_CHECK(view->in == q_latent.dim(2), "the latent's own width");
                    const auto padded = static_cast<std::size_t>(factor.padded);
                    std::fill_n(t.begin(), padded, 0.0F);
                    const P* b = static_cast<const P*>(factor.b) +
                                 head * (view->out / heads) * factor.padded;
                    for (std::int64_t d = 0; d < width; ++d, b += padded) {
                      const float by = to_float(q[d]);
                      for (std::size_t r = 0; r < padded; ++r) t[r] += by * to_float(b[r]);
                    }
                    const auto* a = static_cast<const P*>(factor.a);
                    const float scale = factor.scale * term.scale;
                    for (std::int32_t r = 0; r < factor.rank; ++r, a += view->in) {
                      const float by = scale * t[static_cast<std::size_t>(r)];
                      for (std::int64_t c = 0; c < view->in; ++c) latent[c] += by * to_float(a[c]);
                    }
                  }
                });
    });
  });
}

void kv_b_value_delta(const Batch& batch, std::int32_t layer, std::span<const std::int32_t> labels,
                      const tensor::ConstTensor& latent, const tensor::Tensor& values,
                      const ops::Context& context) {
  const Site site{layer, Projection::kv_b};
  check_heads(latent, labels.size());
  check_heads(values, labels.size());
  const std::int64_t heads = values.dim(1);
  const std::int64_t width = values.dim(2);
  with_type(latent.dtype(), [&]<class X>(X) {
    with_type(batch.dtype(), [&]<class P>(P) {
      for_heads(batch, site, labels, heads, context,
                [&](std::int64_t row, std::int64_t head, std::int32_t label) {
                  // Written as far as it is read.
                  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init)
                  std::array<float, max_rank> t;
                  float* const value = head_of<float>(values, row, head);
                  for (const Batch::Term& term : batch.terms(label)) {
                    const SiteView* const view = term.adapter->find(site);
                    if (view == nullptr) continue;
                    const FactorView& factor = view->factors[0];
                    const float scale = factor.scale * term.scale;
                    // The value rows are the last of the head's.
                    const std::int64_t first = (head + 1) * (view->out / heads) - width;
                    if (factor.rank > 0) {
                      shrink<X, P>(factor, scale, head_of<const X>(latent, row, head), view->in, 0,
                                   factor.padded, t.data());
                      expand<P>(factor, t.data(), first, first + width, value);
                    }
                    if (view->lora_bias != nullptr) {
                      for (std::int64_t d = 0; d < width; ++d)
                        value[d] += scale * view->lora_bias[first + d];
                    }
                    if (view->gain != nullptr) {
                      for (std::int64_t d = 0; d < width; ++d) value[d] *= view->gain[first + d];
                    }
                  }
                });
    });
  });
}

}  // namespace motley::lora
