#include "model/forward/fused_heads.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "ops/attention.h"

namespace motley::model {

using ops::LiveOp;
using ops::OpList;
using tensor::Tensor;

namespace {

// What a launch does with each value's heads, as far as the list has such ops. A bias comes first.

struct Head {
  ValueId x = ops::no_value;
  const float* bias = nullptr;
  const NormOp* norm = nullptr;
  const RotateOp* rotate = nullptr;
  const StoreOp* store = nullptr;
  const RoundOp* round = nullptr;
};

struct HeadOps {
  std::array<Head, ops::max_prepared_heads> all{};
  std::size_t count = 0;
  bool fits = true;

  explicit HeadOps(Ops ops) {
    for (const LiveOp& each : ops) {
      switch (each.kind) {
        case OpKind::norm: {
          const auto& norm = params<NormOp>(each);
          of(norm.x).norm = &norm;
          fits = fits && norm.out == norm.x;
          break;
        }
        case OpKind::rotate:
          of(params<RotateOp>(each).x).rotate = &params<RotateOp>(each);
          break;
        case OpKind::store:
          of(params<StoreOp>(each).x).store = &params<StoreOp>(each);
          break;
        default:
          of(params<RoundOp>(each).x).round = &params<RoundOp>(each);
      }
    }
  }
  std::span<const Head> span() const { return std::span(all).first(count); }

  // Whether these are all heads of the map, which then get its bias.
  bool take_bias(const AdaptOp& map, const OpList& list) {
    const ops::Value& whole = list.value(map.y);
    for (Head& head : std::span(all).first(count)) {
      const ops::Value& x = list.value(head.x);
      if (list.root_of(head.x) != list.root_of(map.y) || x.first != whole.first ||
          x.head_stride != x.width || x.heads * x.width != whole.width)
        continue;
      head.bias = map.linear.bias.data();
      return true;
    }
    return false;
  }

 private:
  Head& of(ValueId x) {
    for (std::size_t i = 0; i < count; ++i)
      if (all[i].x == x) return all[i];
    fits = fits && count < all.size();
    Head& head = all[std::min(count, all.size() - 1)];
    count = std::min(count + 1, all.size());
    head.x = x;
    return head;
  }
};

Ops adapts_of(Ops ops) {
  const auto other = std::ranges::find_if(ops, [](const LiveOp& each) {
    return each.kind != OpKind::adapt && each.kind != OpKind::bias;
  });
  return ops.first(static_cast<std::size_t>(other - ops.begin()));
}
Ops heads_of(Ops ops) { return ops.subspan(adapts_of(ops).size()); }

ops::HeadsCall heads_call(const HeadOps& heads, const Frame& frame) {
  std::array<ops::PreparedHeads, ops::max_prepared_heads> all{};
  ops::PreparedRope rope;
  for (std::size_t i = 0; i < heads.count; ++i) {
    const Head& head = heads.all[i];
    all[i].x = frame.whole(head.x);
    all[i].bias = head.bias;
    if (head.norm != nullptr)
      all[i].norm = {.weight = head.norm->norm.weight.data(), .options = head.norm->norm.options()};
    if (head.rotate != nullptr) {
      all[i].rotated = true;
      rope = {.cos_sin = frame.whole(head.rotate->cos_sin),
              .interleaved = head.rotate->interleaved};
    }
    if (head.store != nullptr) all[i].pages = pages_of(head.store->layer, head.store->cache, frame);
    if (head.round != nullptr) {
      all[i].out = frame.whole(head.round->out);
    } else if (head.store == nullptr) {
      all[i].out = all[i].x;
    }
  }
  return {frame.context, frame.rows(), rope, std::span(all).first(heads.count)};
}

}  // namespace

bool fits_heads(Ops ops, const Frame& frame) {
  const HeadOps heads(heads_of(ops));
  const RotateOp* rotated = nullptr;
  for (const Head& head : heads.span()) {
    if (frame.list.value(head.x).heads == 0) return false;
    if (head.rotate == nullptr) continue;
    if (rotated != nullptr && (rotated->interleaved != head.rotate->interleaved ||
                               rotated->cos_sin != head.rotate->cos_sin))
      return false;
    rotated = head.rotate;
  }
  return heads.fits && rotated != nullptr;
}

bool keeps_queries(const OpList& list, Ops ops, ValueId value) {
  const HeadOps heads(heads_of(ops));
  return std::ranges::any_of(heads.span(), [&](const Head& head) {
    if (head.round != nullptr) return list.overlap(value, head.round->out);
    return head.store == nullptr && list.overlap(value, head.x);
  });
}

void run_heads(Ops ops, const Frame& frame, const kernels::Ahead&) {
  ops::prepare_heads(frame.context, heads_call(HeadOps(ops), frame));
}

bool fits_adapted_heads(Ops ops, const Frame& frame) {
  return share_x(adapts_of(ops)) && fits_heads(ops, frame);
}

void run_adapted_heads(Ops ops, const Frame& frame, const kernels::Ahead&) {
  const Ops adapts = adapts_of(ops);
  HeadOps heads(heads_of(ops));
  AdaptedMaps maps;
  for (const LiveOp& each : adapts) {
    const bool is_bias = each.kind == OpKind::bias;
    if (!is_bias || !heads.take_bias(params<AdaptOp>(each), frame.list)) maps.add(each, frame);
  }
  const ops::HeadsCall call = heads_call(heads, frame);
  if (maps.count == 0) return ops::prepare_heads(frame.context, call);
  lora::finish_heads(frame.mixes, frame.at(params<AdaptOp>(adapts[0]).x), maps.span(), call,
                     frame.context);
}

bool fits_latent_rows(Ops ops, const Frame& frame) {
  const auto& norm = params<NormOp>(ops[0]);
  const auto& key = params<RotateOp>(ops[1]);
  const auto& store = params<StoreOp>(ops[2]);
  const auto& queries = params<RotateOp>(ops[3]);
  const auto& round = params<RoundOp>(ops[4]);
  const OpList& list = frame.list;
  return norm.out == norm.x && list.overlap(norm.x, store.x) && list.overlap(key.x, store.x) &&
         list.overlap(queries.x, round.x) && key.interleaved == queries.interleaved &&
         key.cos_sin == queries.cos_sin && list.value(store.x).heads == 1 &&
         list.value(norm.x).heads == 0;
}

void run_latent_rows(Ops ops, const Frame& frame, const kernels::Ahead&) {
  const auto& norm = params<NormOp>(ops[0]);
  const auto& rotate = params<RotateOp>(ops[1]);
  const auto& store = params<StoreOp>(ops[2]);
  const auto& round = params<RoundOp>(ops[4]);
  const Tensor kv = frame.whole(store.x).merge(1);
  ops::prepare_latent(frame.context, frame.rows(),
                      {.cos_sin = frame.whole(rotate.cos_sin), .interleaved = rotate.interleaved},
                      {.first_row = frame.part.first_row,
                       .count = frame.part.rows,
                       .kv = kv,
                       .norm = {.weight = norm.norm.weight.data(), .options = norm.norm.options()},
                       .q = frame.whole(round.x),
                       .out = frame.whole(round.out)},
                      pages_of(store.layer, store.cache, frame));
}

}  // namespace motley::model
