#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include <cudaTypedefs.h>

#include "base/check.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention/instances.h"
#include "kernels/cuda/attention/shape.cuh"
#include "kernels/cuda/queue.cuh"

namespace motley::kernels::cuda {
namespace tiles {
namespace {

int multiprocessors() {
  static const int count = [] {
    int device = 0;
    int found = 0;
    MOTLEY_CHECK(
        cudaGetDevice(&device) == cudaSuccess &&
            cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, device) == cudaSuccess,
        "a GPU that is there");
    return found;
  }();
  return count;
}

constexpr int latent_width = 576;

struct Kernels {
  int key_width, value_width;
  Instances instances;
};

Instance prepared(Instance instance) {
  if (instance.kernel == nullptr) return instance;
  MOTLEY_CHECK(cudaFuncSetAttribute(instance.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    instance.shared_bytes) == cudaSuccess,
               "shared memory that the kernel was cut for");
  return instance;
}

const std::array<Kernels, 4>& kernels() {
  static const std::array<Kernels, 4> all = [] {
    std::array<Kernels, 4> made = {{{64, 64, widths_64()},
                                    {128, 128, widths_128()},
                                    {192, 128, widths_192_128()},
                                    {576, 512, latent_576_512()}}};
    for (Kernels& each : made) {
      for (Instance& few : each.instances.few) few = prepared(few);
      each.instances.many = prepared(each.instances.many);
      each.instances.many_in_units = prepared(each.instances.many_in_units);
    }
    return made;
  }();
  return all;
}

bool has_widths(std::int64_t key_width, std::int64_t value_width) {
  constexpr std::array<std::array<int, 2>, 4> all = {
      {{64, 64}, {128, 128}, {192, 128}, {576, 512}}};
  return std::ranges::any_of(
      all, [&](const auto& each) { return each[0] == key_width && each[1] == value_width; });
}

const Instances& find(const Attention& p) {
  return std::ranges::find_if(kernels(),
                              [&](const Kernels& each) {
                                return each.key_width == p.key_width &&
                                       each.value_width == p.value_width;
                              })
      ->instances;
}

// A page, or no bound where a sequence has one page only.
int page_shift(const BlockTable& table) {
  constexpr int unbounded = 30;
  const auto tokens = static_cast<std::uint64_t>(table.page_tokens);
  return std::has_single_bit(tokens) ? std::countr_zero(tokens) : unbounded;
}

bool fits_16_bytes(std::int64_t stride, DType type) {
  return stride * (type == DType::f32 ? 4 : 2) % 16 == 0;
}
bool aligned(const void* data, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}
bool copies(const Pages& pages) {
  return aligned(pages.data, 16) && fits_16_bytes(pages.page_stride, pages.type) &&
         fits_16_bytes(pages.token_stride, pages.type) &&
         fits_16_bytes(pages.head_stride, pages.type);
}

PageView view_of(const Pages& pages) {
  return {static_cast<const Bf16*>(pages.data), pages.page_stride, pages.token_stride,
          pages.head_stride};
}

// Boxes of 64 columns and `tokens` tokens of a head in a page: [page, head, token, column].
CUtensorMap boxes_of(const Pages& pages, const BlockTable& table, std::int64_t heads,
                     std::int64_t width, unsigned tokens) {
  static const auto encode = [] {
    cudaDriverEntryPointQueryResult found{};
    void* entry = nullptr;
    MOTLEY_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                                  cudaEnableDefault, &found) == cudaSuccess &&
                     entry != nullptr,
                 "a driver for CUDA 12 or later");
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(entry);
  }();
  constexpr cuuint64_t any_page = std::uint64_t{1} << 31;
  const auto bytes = [](std::int64_t stride) { return static_cast<cuuint64_t>(stride) * 2; };
  const cuuint64_t sizes[4] = {static_cast<cuuint64_t>(width),
                               static_cast<cuuint64_t>(table.page_tokens),
                               static_cast<cuuint64_t>(heads), any_page};
  const cuuint64_t strides[3] = {bytes(pages.token_stride), bytes(pages.head_stride),
                                 bytes(pages.page_stride)};
  const cuuint32_t box[4] = {64, tokens, 1, 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  CUtensorMap map;
  MOTLEY_CHECK(
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, pages.data, sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS,
      "pages whose places and strides 16 bytes divide");
  return map;
}

TileParams params_of(const Attention& p) {
  constexpr double log2_e = 1.44269504088896340736;
  const auto group = static_cast<int>(p.heads / p.kv_heads);
  return {.key_pages = {},
          .value_pages = {},
          .last_tokens = {},
          .shared_pages = {},
          .own_key_panels = static_cast<int>((p.key_width - p.shared_width) / 64),
          .page_tokens = static_cast<int>(p.table.page_tokens),
          .keys = view_of(p.k),
          .values = view_of(p.v),
          .seq_begin = p.sequences.seq_begin,
          .positions = p.sequences.positions,
          .table = p.table.pages,
          .table_stride = p.table.stride,
          .page_shift = page_shift(p.table),
          .sequences = 0,
          .least_rows = 1,
          .most_rows = std::numeric_limits<int>::max(),
          .kv_heads = static_cast<int>(p.kv_heads),
          .group = group,
          .group_inverse = static_cast<std::uint32_t>((std::uint64_t{1} << 32) / group + 1),
          .scale = static_cast<float>(static_cast<double>(p.scale) * log2_e),
          .window = static_cast<int>(p.window),
          .sinks = p.sinks,
          .q = p.q,
          .q_f32 = p.q_type == DType::f32,
          .q_stride = p.q_stride,
          .q_head_stride = p.q_head_stride,
          .out = p.out,
          .out_f32 = p.out_type == DType::f32,
          .out_stride = p.out_stride,
          .out_head_stride = p.out_head_stride,
          .whole = false,
          .slots = 0,
          .partials = p.scratch.partials,
          .partial_count = p.scratch.partial_count,
          .counters = p.scratch.counters,
          .counter_count = p.scratch.counter_count,
          .partial_rows = 0};
}

void launch_tiles(const Instance& instance, TileParams p, std::int64_t most_rows,
                  StreamHandle stream) {
  p.slots = multiprocessors() * instance.blocks_per_sm;
  // An even number: results begin on 16 bytes.
  p.partial_rows = static_cast<int>(std::min<std::int64_t>((most_rows + 1) / 2 * 2, instance.rows));
  queue("attention", instance.kernel,
        {.grid = static_cast<unsigned>(p.slots),
         .threads = static_cast<unsigned>(instance.threads),
         .shared_bytes = static_cast<std::size_t>(instance.shared_bytes)},
        stream, p);
}

void attend(const Attention& a, StreamHandle stream) {
  const Instances& found = find(a);
  TileParams p = params_of(a);
  const std::int64_t rows = a.sequences.most_rows > 0 ? a.sequences.most_rows : a.sequences.rows;
  const std::int64_t packed = rows * p.group;
  for (std::int64_t first = 0; first < a.sequences.count; first += most_sequences) {
    p.sequences =
        static_cast<int>(std::min<std::int64_t>(a.sequences.count - first, most_sequences));
    p.seq_begin = a.sequences.seq_begin + first;
    p.table = a.table.pages + first * a.table.stride;
    p.whole = a.batch_invariant && a.key_width == latent_width;
    int most_few = 0;
    // Keys of two kinds come as boxes only.
    if (a.shared_width == 0)
      for (const Instance& few : found.few) most_few = std::max(most_few, few.most_rows);
    if (packed > most_few) {
      const bool latent = a.key_width == latent_width;
      p.key_pages = boxes_of(a.k, a.table, a.kv_heads, a.key_width - a.shared_width, 16);
      if (a.shared_width > 0) p.shared_pages = boxes_of(a.shared_k, a.table, 1, a.shared_width, 16);
      p.value_pages = boxes_of(a.v, a.table, a.kv_heads, a.value_width, 16);
      p.last_tokens = boxes_of(a.v, a.table, a.kv_heads, latent ? a.key_width : a.value_width, 1);
      p.least_rows = most_few + 1;
      p.most_rows = std::numeric_limits<int>::max();
      const bool in_units = a.batch_invariant && found.many_in_units.kernel != nullptr;
      launch_tiles(in_units ? found.many_in_units : found.many, p, packed, stream);
    }
    if (most_few == 0 || a.sequences.least_rows * p.group > most_few) continue;
    const Instance& few = *std::ranges::find_if(found.few, [&](const Instance& each) {
      return each.most_rows >= std::min<std::int64_t>(packed, most_few);
    });
    p.least_rows = 1;
    p.most_rows = few.most_rows;
    launch_tiles(few, p, packed, stream);
  }
}

}  // namespace
}  // namespace tiles

bool attention_uses_tiles(const Attention& p) {
  using namespace tiles;
  const bool latent = p.key_width == latent_width;
  const std::int64_t page = p.table.page_tokens;
  const bool blocks =
      page >= 16 && (p.table.stride == 1 || std::has_single_bit(static_cast<std::uint64_t>(page)));
  const bool shared = p.shared_width == 0 || (!latent && p.shared_width % 64 == 0 &&
                                              p.shared_k.type == DType::bf16 && copies(p.shared_k));
  return p.k.type == DType::bf16 && has_widths(p.key_width, p.value_width) && blocks && shared &&
         copies(p.k) && copies(p.v) && (!latent || p.v.data == p.k.data) && aligned(p.q, 16) &&
         fits_16_bytes(p.q_stride, p.q_type) && fits_16_bytes(p.q_head_stride, p.q_type) &&
         aligned(p.out, 16) && fits_16_bytes(p.out_stride, p.out_type) &&
         fits_16_bytes(p.out_head_stride, p.out_type) && p.scale > 0;
}

DType attention_queries(const Attention& params) {
  return attention_uses_tiles(params) ? DType::bf16 : DType::f32;
}

void attention(const Attention& params, StreamHandle stream) {
  if (params.sequences.count == 0 || params.sequences.rows == 0) return;
  if (attention_uses_tiles(params)) return tiles::attend(params, stream);
  attention_plain(params, stream);
}

AttentionScratchSize attention_scratch_size(std::int64_t sequences, std::int64_t heads,
                                            std::int64_t kv_heads, std::int64_t value_width) {
  // Where stretches are cut there are about as many items as blocks side by side, and what is left
  // over of each sequence; a tile has at most 128 rows.
  const std::int64_t blocks = 2 * tiles::multiprocessors();
  const std::int64_t items = blocks + 2 * sequences * kv_heads;
  const std::int64_t rows =
      std::min<std::int64_t>(128, std::max<std::int64_t>(heads / kv_heads, 64));
  return {.partials = items * 4 * rows * (value_width + 2), .counters = 2 * items};
}

}  // namespace motley::kernels::cuda
