#include "ops/sample.h"

#include "kernels/elementary.h"
#include "ops/check.h"
#include "tensor/arena.h"

namespace motley::ops {
namespace {

template <class Tensor>
void check_integers(const Tensor& tensor, int rank, std::int64_t width) {
  if (tensor.shape().rank() == 0) return;
  MOTLEY_CHECK(tensor.shape().rank() == rank && tensor.dtype() == DType::i32, "i32 tables");
  MOTLEY_CHECK(tensor.dim(rank - 1) >= width && tensor.stride(rank - 1) == 1,
               "a table as wide as the vocabulary");
}

// An unused table is an empty tensor.
template <class T, class Tensor>
auto* data_of(const Tensor& tensor) {
  using Element = std::remove_reference_t<decltype(*tensor.template data<T>())>;
  return tensor.shape().rank() == 0 ? static_cast<Element*>(nullptr) : tensor.template data<T>();
}

template <class Tensor>
std::int64_t row_stride(const Tensor& tensor) {
  return tensor.shape().rank() == 0 ? 0 : tensor.stride(0);
}

}  // namespace

std::int64_t sample_scratch_bytes(const Context& context, std::int64_t rows, std::int64_t width) {
  check_context(context);
  return context.kernels->sample_scratch_bytes(rows, width, context.stream);
}

void sample(const Context& context, const tensor::ConstTensor& logits, const SampleTables& tables,
            const SampleAnswers& answers) {
  check_context(context);
  check_float32(logits, 2);
  const std::int64_t rows = logits.dim(0);
  const std::int64_t width = logits.dim(1);
  if (rows == 0) return;
  MOTLEY_CHECK(width >= 1 && width <= kernels::max_sampled_width, "a vocabulary of this size");
  MOTLEY_CHECK(tables.choices != nullptr && answers.ids != nullptr, "choices and their answers");
  check_integers(tables.masks, 2, (width + 31) / 32);
  check_integers(tables.counts, 2, width);
  check_integers(answers.top_ids, 2, 0);
  const std::int64_t tops = row_stride(answers.top_ids);
  MOTLEY_CHECK(tops == row_stride(answers.top_log_probabilities), "as many values as ids");

  const std::int64_t scratch_bytes = sample_scratch_bytes(context, rows, width);
  void* scratch = nullptr;
  std::size_t mark = 0;
  if (scratch_bytes > 0) {
    MOTLEY_CHECK(context.scratch != nullptr, "scratch to sample in");
    mark = context.scratch->mark();
    scratch = context.scratch->allocate(DType::u8, {scratch_bytes}).value().bytes();
  }
  context.kernels->sample(
      {.rows = rows,
       .width = width,
       .logits = logits.data<float>(),
       .logits_stride = logits.stride(0),
       .choices = tables.choices,
       .masks = reinterpret_cast<const std::uint32_t*>(data_of<std::int32_t>(tables.masks)),
       .mask_stride = row_stride(tables.masks),
       .counts = data_of<std::int32_t>(tables.counts),
       .counts_stride = row_stride(tables.counts),
       .bias_ids = tables.bias_ids,
       .biases = tables.biases,
       .ids = answers.ids,
       .log_probabilities = answers.log_probabilities,
       .ranks = answers.ranks,
       .top_stride = tops,
       .top_ids = data_of<std::int32_t>(answers.top_ids),
       .top_log_probabilities = data_of<float>(answers.top_log_probabilities),
       .named_ids = tables.named_ids,
       .named_log_probabilities = answers.named_log_probabilities,
       .named_ranks = answers.named_ranks,
       .scratch = scratch},
      context.stream);
  if (scratch_bytes > 0) context.scratch->rewind(mark);
}

void count_tokens(const Context& context, const std::int32_t* tokens, std::int64_t prompt,
                  std::int64_t generated, const tensor::Tensor& counts) {
  check_context(context);
  check_integers(counts, 1, 1);
  context.kernels->count_tokens({.width = counts.dim(0),
                                 .counts = counts.data<std::int32_t>(),
                                 .tokens = tokens,
                                 .prompt = prompt,
                                 .generated = generated},
                                context.stream);
}

}  // namespace motley::ops
