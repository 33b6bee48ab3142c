#pragma once

#include <cstddef>

#include "base/stream_handle.h"
#include "kernels/elementary.h"

// Paged keys and values on a GPU: the elementary table's entries. A launch that fails leaves its
// error with the CUDA runtime, where whoever waits for the stream finds it.
namespace motley::kernels::cuda {

void store_paged(const StorePaged& params, StreamHandle stream);
void gather_paged(const GatherPaged& params, StreamHandle stream);

// bf16 keys and values of widths 64/64, 128/128, 192/128 and 576/512 (values inside keys) go
// through the tensor cores, with queries and softmax weights rounded to bf16; all else is float32.
void attention(const Attention& params, StreamHandle stream);

// Float32, whatever the widths: the other's oracle.
void attention_plain(const Attention& params, StreamHandle stream);

// Whether the tensor cores' kernels take it: widths, alignment to 16 bytes, pages of powers of two.
bool attention_uses_tiles(const Attention& params);

// What they round queries to; see ElementaryTable.
DType attention_queries(const Attention& params);

// Of this device.
AttentionScratchSize attention_scratch_size(std::int64_t sequences, std::int64_t heads,
                                            std::int64_t kv_heads, std::int64_t value_width);

}  // namespace motley::kernels::cuda
