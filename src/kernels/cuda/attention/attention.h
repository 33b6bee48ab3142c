#pragma once

#include <cstddef>

#include "base/system/stream_handle.h"
#include "kernels/elementary.h"

// Paged keys and values on a GPU: the elementary table's entries.
namespace motley::kernels::cuda {

void gather_paged(const GatherPaged& params, StreamHandle stream);

// bf16 keys and values of widths 64/64, 128/128, 192/128 and 576/512 (values inside keys) go
// through the tensor cores, with queries and softmax weights rounded to bf16; all else is float32.
void attention(const Attention& params, StreamHandle stream);

// Float32, whatever the widths: the other's oracle.
void attention_plain(const Attention& params, StreamHandle stream);

// What they round queries to; see ElementaryTable.
DType attention_queries(const Attention& params);

AttentionScratchSize attention_scratch(const AttentionShape& shape, StreamHandle stream);

// Sets the attributes of the kernels, on the current device, and asks whether blocks that wait for
// each other fit on it.
Result<void> prepare_attention();

}  // namespace motley::kernels::cuda
