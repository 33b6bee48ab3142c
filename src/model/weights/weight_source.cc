#include "model/weights/weight_source.h"

#include <algorithm>
#include <cstring>

#include "base/cat.h"
#include "tensor/convert.h"

namespace motley::model {
namespace {

std::string file_of(const tensor::Checkpoint::Item& item) {
  return printable(item.file->path().string());
}

}  // namespace

Result<tensor::ConstTensor> WeightSource::tensor(std::string_view name,
                                                 const tensor::Shape& shape) {
  if (random_ != nullptr) return random_->tensor(name, shape);
  const tensor::Checkpoint::Item* const item = checkpoint_->find(name);
  if (item == nullptr)
    return Error(ErrorCode::bad_file, cat("no tensor ", quote(name)),
                 printable(checkpoint_->files().front().path().parent_path().string()),
                 "the config asks for it; check that weights and config belong together");
  if (item->entry->shape != shape)
    return Error(ErrorCode::bad_file,
                 cat("tensor ", quote(name), " has shape ", to_string(item->entry->shape),
                     " instead of ", to_string(shape)),
                 file_of(*item), "check that weights and config belong together");
  const DType dtype = item->entry->dtype;
  if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16)
    return Error(ErrorCode::unsupported,
                 cat("tensor ", quote(name), " has dtype ", motley::name(dtype)), file_of(*item),
                 "store it as F32, F16 or BF16");
  taken_.emplace(name);
  return item->tensor();
}

bool WeightSource::has_module(std::string_view module) const {
  if (random_ != nullptr) return true;
  const std::string prefix = cat(module, ".");
  const auto items = checkpoint_->items();
  const auto at = std::ranges::lower_bound(
      items, std::string_view(prefix), {},
      [](const tensor::Checkpoint::Item& item) { return std::string_view(item.name()); });
  return at != items.end() && at->name().starts_with(prefix);
}

Result<std::vector<float>> WeightSource::numbers(std::string_view name,
                                                 const tensor::Shape& shape) {
  if (random_ != nullptr) return random_->numbers(name, shape.elements());
  MOTLEY_TRY(const tensor::ConstTensor stored, tensor(name, shape));
  std::vector<float> values(static_cast<std::size_t>(stored.elements()));
  tensor::widen(stored.dtype(), stored.bytes(), 0, values);
  return values;
}

Result<Vector> WeightSource::vector(std::string_view name, std::int64_t length) {
  MOTLEY_TRY(const std::vector<float> values, numbers(name, {length}));
  return Vector::create(values, memory_.device, memory_.uploader);
}

Result<quant::Weight> WeightSource::matrix(std::string_view module, quant::TrueSize size) {
  if (random_ != nullptr) return random_->matrix(module, size, memory_.host);
  const auto lookup = [this](std::string_view name) -> std::optional<tensor::ConstTensor> {
    const tensor::Checkpoint::Item* const item = checkpoint_->find(name);
    if (item == nullptr) return std::nullopt;
    return item->tensor();
  };
  auto loaded = quant::load_weight(*quantization_, lookup, module, size, memory_.host);
  if (!loaded.ok())
    return std::move(loaded).error().within(
        printable(checkpoint_->files().front().path().parent_path().string()));
  for (std::string& name : loaded->used) taken_.insert(std::move(name));
  return std::move(loaded->weight);
}

Result<quant::Weight> WeightSource::resident(const quant::Weight& weight) {
  if (weight.format().scales != quant::Format::Scales::block)
    return quant::upload(weight, *memory_.uploader);
  ++decoded_;
  return quant::upload_decoded(weight, memory_.exact ? DType::f32 : DType::bf16, *memory_.uploader);
}

Result<quant::Weight> WeightSource::resident_for_float32(const quant::Weight& weight) {
  if (memory_.exact) return resident(weight);
  return quant::upload_decoded(weight, DType::f32, *memory_.uploader);
}

WeightSource WeightSource::beside(quant::Uploader* uploader) const {
  const Memory memory{
      .host = memory_.host, .device = memory_.device, .uploader = uploader, .exact = memory_.exact};
  if (random_ != nullptr) return {*random_, memory};
  return {*checkpoint_, *quantization_, memory};
}

void WeightSource::merge(WeightSource&& other) {
  taken_.merge(other.taken_);
  decoded_ += other.decoded_;
}

Result<void> WeightSource::finish(const std::function<bool(std::string_view)>& skipped) const {
  if (random_ != nullptr) return {};
  constexpr std::size_t named = 3;
  std::vector<std::string> left;
  std::size_t count = 0;
  for (const tensor::Checkpoint::Item& item : checkpoint_->items()) {
    if (taken_.contains(item.name()) || skipped(item.name())) continue;
    if (++count <= named) left.push_back(quote(item.name()));
  }
  if (count == 0) return {};
  if (count > named) left.push_back(cat("and ", count - named, " more"));
  return Error(ErrorCode::bad_file, cat("tensors that the model has no place for: ", join(left)),
               printable(checkpoint_->files().front().path().parent_path().string()),
               "check that weights and config belong together");
}

Result<quant::Weight> transposed_rows(const tensor::ConstTensor& matrix, std::int64_t first,
                                      std::int64_t step, tensor::Allocator& allocator) {
  const std::int64_t in = matrix.dim(0);
  const std::int64_t columns = matrix.dim(1);
  const std::int64_t out = (columns - first + step - 1) / step;
  const auto width = static_cast<std::size_t>(bits(matrix.dtype()) / 8);
  MOTLEY_TRY(tensor::Buffer data, allocator.allocate(static_cast<std::size_t>(out * in) * width));
  // Column by column of the result; the source may have any alignment.
  for (std::int64_t k = 0; k < in; ++k) {
    const std::byte* const source = matrix.bytes() + static_cast<std::size_t>(k * columns) * width;
    for (std::int64_t o = 0; o < out; ++o) {
      std::memcpy(data.data() + static_cast<std::size_t>(o * in + k) * width,
                  source + static_cast<std::size_t>(first + o * step) * width, width);
    }
  }
  const quant::Format format{.element = matrix.dtype(), .bits = bits(matrix.dtype())};
  return quant::Weight::own(format, {.out = out, .in = in}, std::move(data), tensor::Buffer());
}

}  // namespace motley::model
