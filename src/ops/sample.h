#pragma once

#include <cstdint>

#include "kernels/sampling.h"
#include "ops/context.h"
#include "tensor/tensor.h"

namespace motley::ops {

// The choices of a step's rows, in the memory of the device that runs; kernels/sampling.h explains
// their fields.
struct SampleTables {
  const kernels::SampleChoice* choices = nullptr;  // [R]
  tensor::ConstTensor masks = {};                  // [masks, at least V / 32 words], i32
  tensor::Tensor counts = {};                      // [sequences with penalties, V], i32
  const std::int32_t* bias_ids = nullptr;
  const float* biases = nullptr;
  const std::int32_t* named_ids = nullptr;
};

struct SampleAnswers {
  std::int32_t* ids = nullptr;         // [R]; or a code of kernels/sampling.h if there is no token
  float* log_probabilities = nullptr;  // [R], written if a choice requests it
  std::int32_t* ranks = nullptr;       // [R], written if a choice requests it
  tensor::Tensor top_ids = {};         // [R, most tops], i32
  tensor::Tensor top_log_probabilities = {};  // [R, most tops], f32
  float* named_log_probabilities = nullptr;   // by named token; written if a choice requests it
  std::int32_t* named_ranks = nullptr;        // the same
};

// Samples one token for each row of logits [R, V] in f32. A row's result depends on that row alone.
void sample(const Context& context, const tensor::ConstTensor& logits, const SampleTables& tables,
            const SampleAnswers& answers);

// Scratch that sample() takes from the context's arena.
std::int64_t sample_scratch_bytes(const Context& context, std::int64_t rows, std::int64_t width);

// Counts all tokens of a sequence: counts is [V] in i32; tokens are those of the prompt, then those
// generated, all in device memory.
void count_tokens(const Context& context, const std::int32_t* tokens, std::int64_t prompt,
                  std::int64_t generated, const tensor::Tensor& counts);

}  // namespace motley::ops
