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

// The state of a step that runs a list: where each value is, and the rows that an op processes.
struct Frame {
  const ops::OpList& list;
  const ops::MemoryPlan& plan;
  std::byte* memory;                          // the plan's
  tensor::DeviceId device;                    // where it is
  std::span<const tensor::Tensor> externals;  // by number
  ops::Context context;                       // with the scratch of the current ops
  const Batch& batch;
  const moe::Workspaces& experts;  // whose step has begun
  kernels::AttentionScratch attention_scratch;
  StepPart part;              // of the current ops; all rows if they apply to all
  lora::RowMixes mixes = {};  // of those rows

  // The part's rows of a value: [rows, width], or [rows, heads, width].
  tensor::Tensor at(ops::ValueId value) const;
  // All rows of a value, for kernels that find a part's rows themselves.
  tensor::Tensor whole(ops::ValueId value) const;
  ops::PagedRows rows() const { return batch.rows_of(part); }
};

}  // namespace motley::model
