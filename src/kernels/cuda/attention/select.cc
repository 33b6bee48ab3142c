// Selects the attention kernels.

#include <algorithm>
#include <bit>

#include "base/cat.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/primitives/device.h"
#include "kernels/cuda/thresholds.h"

namespace motley::kernels::cuda {
namespace {

using tiles::latent_width;

bool fits_16_bytes(std::int64_t stride, DType type) { return stride * bits(type) / 8 % 16 == 0; }
bool aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }
bool copies(const Pages& pages) {
  return aligned(pages.data) && fits_16_bytes(pages.page_stride, pages.type) &&
         fits_16_bytes(pages.token_stride, pages.type) &&
         fits_16_bytes(pages.head_stride, pages.type);
}
bool copies_rows(const Attention& p) {
  return aligned(p.q) && fits_16_bytes(p.q_stride, p.q_type) &&
         fits_16_bytes(p.q_head_stride, p.q_type) && aligned(p.out) &&
         fits_16_bytes(p.out_stride, p.out_type) && fits_16_bytes(p.out_head_stride, p.out_type);
}

bool takes_widths(const AttentionKernel& kernel, const Attention& p) {
  return kernel.key_width == 0 ||
         (kernel.key_width == p.key_width && kernel.value_width == p.value_width);
}

// What all tensor-core kernels require.
Support takes_tiles(const AttentionKernel& kernel, const Attention& p, DType pages) {
  if (!takes_widths(kernel, p))
    return Support::no("it takes keys of {} and values of {}", kernel.key_width,
                       kernel.value_width);
  if (p.k.type != pages)
    return Support::no(pages == DType::bf16 ? "it reads pages of bf16" : "it reads pages of codes");
  const std::int64_t page = p.table.page_tokens;
  if (page < 16 || (p.table.stride != 1 && !std::has_single_bit(static_cast<std::uint64_t>(page))))
    return Support::no("it takes pages of 16, 32, 64 ... tokens, or one page a sequence");
  if (!copies(p.k) || !copies(p.v))
    return Support::no("it copies keys and values that begin on 16 bytes");
  if (p.key_width == latent_width && p.v.data != p.k.data)
    return Support::no("it takes values that lie in their keys");
  if (p.gates.data != nullptr && !tiles::takes_gates(p.key_width, p.value_width))
    return Support::no("it takes gates of heads whose keys are as wide as their values");
  if (!copies_rows(p)) return Support::no("it takes queries and results that begin on 16 bytes");
  if (!(p.scale > 0)) return Support::no("it takes a scale above zero");
  return Support::yes();
}

bool bounded(const AttentionThreshold& row) { return row.max_packed != any_packed_rows; }

bool fits(const AttentionThreshold& row, const Attention& p) {
  return takes_widths(*row.kernel, p) && (p.batch_invariant || !row.batch_invariant) &&
         row.kernel->supports(*row.kernel, p);
}

template <class Bounds>
const AttentionThreshold* first_that_fits(const Attention& p, Bounds bounds) {
  for (const AttentionThreshold& row : attention_thresholds)
    if (bounds(row) && fits(row, p)) return &row;
  return nullptr;
}

}  // namespace

Support supports_plain(const AttentionKernel&, const Attention& p) {
  if (std::max(p.key_width, p.value_width) > max_head_width)
    return Support::no("it takes widths up to {}", max_head_width);
  return Support::yes();
}

Support supports_few(const AttentionKernel& kernel, const Attention& p) {
  if (p.shared_width > 0)
    return Support::no("it takes no columns of keys that heads have in common");
  return takes_tiles(kernel, p, DType::bf16);
}

Support supports_many(const AttentionKernel& kernel, const Attention& p) {
  if (p.shared_width > 0) {
    if (kernel.key_width == latent_width)
      return Support::no("it takes no columns of keys that heads have in common");
    if (p.shared_width % 64 != 0 || p.shared_k.type != DType::bf16 || !copies(p.shared_k))
      return Support::no(
          "it takes common columns of keys in 64s, in pages of bf16 that begin on 16 bytes");
  }
  return takes_tiles(kernel, p, DType::bf16);
}

Support supports_codes(const AttentionKernel& kernel, const Attention& p) {
  if (Support support = takes_tiles(kernel, p, DType::f8_e4m3); !support) return support;
  if (p.q_type != DType::bf16) return Support::no("it takes queries in bf16");
  if (!std::has_single_bit(static_cast<std::uint64_t>(p.table.page_tokens)))
    return Support::no("it takes pages of 16, 32, 64 ... tokens");
  if (!aligned(p.k.exponents) || !aligned(p.v.exponents))
    return Support::no("it copies exponents that begin on 16 bytes");
  if (p.shared_width > 0)
    return Support::no("it takes no columns of keys that heads have in common");
  return Support::yes();
}

AttentionLaunches select_attention(const Attention& p) {
  AttentionLaunches launches;
  const auto add = [&](const AttentionThreshold& row, const PackedRows& rows) {
    launches.all[static_cast<std::size_t>(launches.count++)] = {.kernel = row.kernel, .rows = rows};
  };
  const std::int64_t group = p.heads / p.kv_heads;
  const std::int64_t rows = p.sequences.max_rows > 0 ? p.sequences.max_rows : p.sequences.rows;
  const std::int64_t packed = rows * group;
  std::int64_t few = 0;  // packed rows of the sequences for the kernels of few rows
  for (const AttentionThreshold& row : attention_thresholds)
    if (bounded(row) && fits(row, p)) few = std::max(few, row.max_packed);
  if (packed > few) {
    const auto* const many =
        first_that_fits(p, [](const AttentionThreshold& row) { return !bounded(row); });
    if (many == nullptr) return {};
    add(*many, {.least = static_cast<int>(few) + 1});
  }
  if (few == 0 || p.sequences.least_rows * group > few) return launches;
  const auto* const least = first_that_fits(p, [&](const AttentionThreshold& row) {
    return bounded(row) && row.max_packed >= std::min(packed, few);
  });
  add(*least, {.least = 1, .max = static_cast<int>(least->max_packed)});
  return launches;
}

std::string refusals(const Attention& problem) {
  std::string all;
  for (const AttentionThreshold& row : attention_thresholds) {
    const AttentionKernel& kernel = *row.kernel;
    const Support support = kernel.supports(kernel, problem);
    if (support) continue;
    all += cat(all.empty() ? "" : "; ", kernel.info.name, ": ", support.reason());
  }
  return all;
}

DType attention_queries(const Attention& params) {
  const auto* const row = first_that_fits(params, [](const AttentionThreshold&) { return true; });
  return row == nullptr ? DType::f32 : row->kernel->queries;
}

void attention(const Attention& params, StreamHandle stream) {
  if (params.sequences.count == 0 || params.sequences.rows == 0 || params.heads == 0) return;
  const AttentionLaunches launches = select_attention(params);
  for (const AttentionLaunch& launch : launches.span())
    launch.kernel->run(*launch.kernel, params, launch.rows, stream);
  if (launches.count > 0) return;
  device_of(stream).keep(Error(ErrorCode::unsupported,
                               cat("no kernel for this attention: ", refusals(params)), "cuda",
                               "report it with the model's configuration"));
}

}  // namespace motley::kernels::cuda
