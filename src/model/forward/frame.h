#pragma once

#include <span>

#include "lora/apply/apply.h"
#include "model/step.h"
#include "moe/workspaces.h"
#include "ops/context.h"
#include "ops/list/memory_plan.h"
#include "ops/list/op_list.h"
#include "tensor/tensor.h"

namespace motley::model {

// A step that goes through a list: where each value lies, and which rows an op works on.
struct Frame {
  const ops::OpList& list;
  const ops::MemoryPlan& plan;
  std::byte* memory;                          // the plan's
  tensor::DeviceId device;                    // where it is
  std::span<const tensor::Tensor> externals;  // by number
  ops::Context context;                       // with the scratch of the ops at hand
  const Batch& batch;
  const moe::Workspaces& experts;  // whose step has begun
  kernels::AttentionScratch attention_scratch;
  StepPart part;              // of the ops at hand; all rows, if they serve all
  lora::RowMixes mixes = {};  // of those rows

  // A value's rows of the part; [rows, width], or [rows, heads, width].
  tensor::Tensor at(ops::ValueId value) const;
  // All of its rows, for kernels that find a part's rows by the step's numbers.
  tensor::Tensor whole(ops::ValueId value) const;
  ops::PagedRows rows() const { return batch.rows_of(part); }
};

}  // namespace motley::model
