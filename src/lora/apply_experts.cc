#include <algorithm>
#include <array>

#include "base/check.h"
#include "lora/apply.h"
#include "lora/batch.h"
#include "lora/kernels.h"

namespace motley::lora {

namespace {

// Calls body(place, segment) for every routed pair that has a label.
template <class Body>
void for_labelled(const plan::Plan& plan, const ops::Context& context, Body body) {
  const auto segments = plan.segments();
  if (plan.routed_pairs() == 0) return;
  threads(context).for_ranges(plan.routed_pairs(), 1, [&](std::int64_t begin, std::int64_t end) {
    auto segment = std::ranges::upper_bound(
        segments, begin, {}, [](const plan::Segment& s) { return std::int64_t{s.end}; });
    for (; segment != segments.end() && segment->begin < end; ++segment) {
      if (segment->label == plan::no_label) continue;
      const std::int64_t last = std::min<std::int64_t>(segment->end, end);
      for (std::int64_t place = std::max<std::int64_t>(segment->begin, begin); place < last;
           ++place)
        body(place, *segment);
    }
  });
}

// An adapter's factors for one expert; rank 0 where it has none.
FactorView factor_of(const SiteView* view, std::int32_t expert) {
  return view == nullptr ? FactorView() : view->factors[static_cast<std::size_t>(expert)];
}

}  // namespace

void add_gate_up(const ExpertDeltas& deltas, const plan::Plan& plan, const tensor::ConstTensor& x,
                 const tensor::Tensor& gate, const tensor::Tensor& up,
                 const ops::Context& context) {
  const Batch& batch = *deltas.batch;
  const Site gate_site{deltas.layer, Projection::expert_gate};
  const Site up_site{deltas.layer, Projection::expert_up};
  if (!batch.touches(gate_site) && !batch.touches(up_site)) return;
  const std::int64_t width = gate.dim(1);
  const std::int64_t in = x.dim(1);
  check_rows(x, plan.tokens(), in);
  MOTLEY_CHECK(gate.dim(0) >= plan.routed_pairs() && up.dim(0) == gate.dim(0) &&
                   up.dim(1) == width && gate.stride(1) == 1 && up.stride(1) == 1,
               "a row for each pair");
  const auto tokens = plan.tokens_in_order();
  with_type(x.dtype(), [&]<class X>(X) {
    with_type(batch.dtype(), [&]<class P>(P) {
      for_labelled(plan, context, [&](std::int64_t place, const plan::Segment& segment) {
        // Written as far as it is read. NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init)
        std::array<float, max_rank> t;
        const X* const row = row_of<const X>(x, tokens[static_cast<std::size_t>(place)]);
        for (const Batch::Term& term : batch.terms(segment.label)) {
          const FactorView gates = factor_of(term.adapter->find(gate_site), segment.expert);
          const FactorView ups = factor_of(term.adapter->find(up_site), segment.expert);
          if (gates.rank > 0) {
            shrink<X, P>(gates, gates.scale * term.scale, row, in, 0, gates.padded, t.data());
            expand<P>(gates, t.data(), 0, width, row_of<float>(gate, place));
          }
          if (ups.rank == 0) continue;
          // A fused gate_up has one A for both.
          const bool shared =
              ups.a == gates.a && ups.rank == gates.rank && ups.scale == gates.scale;
          if (!shared) shrink<X, P>(ups, ups.scale * term.scale, row, in, 0, ups.padded, t.data());
          expand<P>(ups, t.data(), 0, width, row_of<float>(up, place));
        }
      });
    });
  });
}

void add_down(const ExpertDeltas& deltas, const plan::Plan& plan, const tensor::ConstTensor& h,
              const tensor::Tensor& out, const ops::Context& context) {
  const Batch& batch = *deltas.batch;
  const Site site{deltas.layer, Projection::expert_down};
  if (!batch.touches(site)) return;
  const std::int64_t in = h.dim(1);
  const std::int64_t width = out.dim(1);
  MOTLEY_CHECK(h.dim(0) >= plan.routed_pairs() && out.dim(0) >= plan.routed_pairs() &&
                   h.stride(1) == 1 && out.stride(1) == 1,
               "a row for each pair");
  with_type(h.dtype(), [&]<class X>(X) {
    with_type(batch.dtype(), [&]<class P>(P) {
      for_labelled(plan, context, [&](std::int64_t place, const plan::Segment& segment) {
        // Written as far as it is read. NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init)
        std::array<float, max_rank> t;
        for (const Batch::Term& term : batch.terms(segment.label)) {
          const FactorView factor = factor_of(term.adapter->find(site), segment.expert);
          if (factor.rank == 0) continue;
          shrink<X, P>(factor, factor.scale * term.scale, row_of<const X>(h, place), in, 0,
                       factor.padded, t.data());
          expand<P>(factor, t.data(), 0, width, row_of<float>(out, place));
        }
      });
    });
  });
}

}  // namespace motley::lora
