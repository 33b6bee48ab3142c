#pragma once

#include <cstddef>

#include "base/system/stream_handle.h"
#include "kernels/elementary.h"

// Attention over paged keys and values: entries of the GPU's kernel table.
namespace motley::kernels::cuda {

void gather_paged(const GatherPaged& params, StreamHandle stream);

// Keys and values in bf16 with widths 64/64, 128/128, 192/128, 256/256, 512/512 and 576/512 (values
// inside keys) use the tensor cores, with queries and softmax weights rounded to bf16. Everything
// else is float32.
void attention(const Attention& params, StreamHandle stream);

// Float32 for any widths: the reference for the tensor-core kernels.
void attention_plain(const Attention& params, StreamHandle stream);

// The type to which they round queries; see ElementaryTable.
DType attention_queries(const Attention& params);

AttentionScratchSize attention_scratch(const AttentionShape& shape, StreamHandle stream);

// Sets the kernels' attributes on the current device, and checks that blocks which wait for each
// other are co-resident.
Result<void> prepare_attention();

}  // namespace motley::kernels::cuda
