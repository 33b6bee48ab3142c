#include "model/weights/weight_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <tuple>

#include "base/cat.h"
#include "model/weights/cut_weight.h"
#include "quant/formats.h"
#include "tensor/convert.h"

namespace motley::model {
namespace {

std::string file_of(const tensor::Checkpoint::Item& item) {
  return printable(item.file->path().string());
}

// Those whose names begin so.
std::span<const tensor::Checkpoint::Item> items_of(const tensor::Checkpoint& checkpoint,
                                                   std::string_view prefix) {
  const auto start_of = [&](const tensor::Checkpoint::Item& item) {
    return std::string_view(item.name()).substr(0, prefix.size());
  };
  const auto found = std::ranges::equal_range(checkpoint.items(), prefix, {}, start_of);
  return {found.begin(), found.end()};
}

}  // namespace

Result<tensor::ConstTensor> WeightSource::tensor(std::string_view own_name,
                                                 const tensor::Shape& shape) {
  if (random_ != nullptr) return random_->tensor(own_name, shape);
  const std::string name = names_.stored(own_name);
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
  taken_.insert(name);
  return item->tensor();
}

bool WeightSource::has(std::string_view name, const tensor::Shape& shape) const {
  return has(name) && checkpoint_->find(names_.stored(name))->entry->shape == shape;
}

bool WeightSource::has_module(std::string_view module) const {
  if (random_ != nullptr) return true;
  return !items_of(*checkpoint_, cat(names_.stored(module), ".")).empty();
}

void WeightSource::leave_to_others(std::string_view prefix) {
  if (random_ != nullptr) return;
  for (const tensor::Checkpoint::Item& item : items_of(*checkpoint_, names_.stored(prefix)))
    taken_.emplace(item.name());
}

bool WeightSource::has_input_order(std::string_view module) const {
  if (random_ != nullptr) return false;
  const std::optional<quant::Scheme> scheme = quantization_->scheme_of(names_.stored(module));
  return scheme && scheme->format.input_order;
}

bool WeightSource::round_inputs_alike(std::string_view first, std::string_view second) const {
  if (random_ != nullptr) return true;
  const auto inputs_of = [&](std::string_view module) {
    const std::optional<quant::Scheme> scheme = quantization_->scheme_of(names_.stored(module));
    const quant::Format format = scheme ? scheme->format : quant::plain_format(DType::f32);
    return std::tuple(format.inputs, format.input_type, format.power_of_two_inputs,
                      format.input_columns);
  };
  return inputs_of(first) == inputs_of(second);
}

Result<std::vector<float>> WeightSource::numbers(std::string_view name,
                                                 const tensor::Shape& shape) {
  if (random_ != nullptr) return random_->numbers(name, shape.elements());
  MOTLEY_TRY(const tensor::ConstTensor stored, tensor(name, shape));
  std::vector<float> values(static_cast<std::size_t>(stored.elements()));
  tensor::widen(stored.dtype(), stored.bytes(), 0, values);
  return values;
}

Result<std::optional<float>> WeightSource::number(std::string_view name) {
  const tensor::Checkpoint::Item* const item =
      checkpoint_ == nullptr ? nullptr : checkpoint_->find(names_.stored(name));
  if (item == nullptr || item->entry->shape.elements() != 1) return std::optional<float>();
  MOTLEY_TRY(const std::vector<float> values, numbers(name, item->entry->shape));
  return std::optional(values[0]);
}

Result<Vector> WeightSource::vector(std::string_view name, std::int64_t length,
                                    const std::optional<dist::Ranges>& ranges) {
  MOTLEY_TRY(const std::vector<float> values, numbers(name, {length}));
  return vector(values, ranges);
}

Result<Vector> WeightSource::vector(std::span<const float> numbers,
                                    const std::optional<dist::Ranges>& ranges) const {
  if (!ranges) return Vector::create(numbers, memory_.device, memory_.uploader);
  std::vector<float> own;
  for (const dist::Range& part : ranges->parts())
    own.insert(own.end(), numbers.begin() + part.begin, numbers.begin() + part.end);
  return Vector::create(own, memory_.device, memory_.uploader);
}

Result<Vector> WeightSource::norm(std::string_view name, std::int64_t length, bool adds_one,
                                  const std::optional<dist::Ranges>& ranges) {
  MOTLEY_TRY(std::vector<float> values, numbers(name, {length}));
  // Random ones are one already.
  if (adds_one && random_ == nullptr)
    for (float& value : values) value += 1;
  return vector(values, ranges);
}

Result<PartOfWeight> WeightSource::matrix(std::string_view module, quant::TrueSize size,
                                          const Cut& cut) {
  PartOfWeight part;
  if (cut.empty()) {
    MOTLEY_TRY(part.own, matrix(module, size));
    return part;
  }
  // Random numbers are as good in any part; codes have scales on both sides of a cut.
  if (random_ != nullptr && !random_->has_codes(module)) {
    MOTLEY_TRY(part.own, matrix(module, size_of(cut, size)));
    return part;
  }
  MOTLEY_TRY(part.whole, matrix(module, size));
  const quant::Format& format = part.whole.format();
  if (format.scales != quant::Format::Scales::none) {
    MOTLEY_TRY(part.own,
               cut_weight(part.whole, cut, module, memory_.host, has_input_order(module)));
    part.whole = {};
    return part;
  }
  const kernels::WeightView& view = part.whole.view();
  const tensor::ConstTensor stored(static_cast<const std::byte*>(view.data), format.element,
                                   {view.out, view.in}, {});
  MOTLEY_TRY(part.own, cut_weight(stored, cut, memory_.host));
  return part;
}

Result<quant::Weight> WeightSource::matrix(std::string_view own_module, quant::TrueSize size) {
  if (random_ != nullptr) return random_->matrix(own_module, size, memory_.host);
  const std::string module = names_.stored(own_module);
  const auto lookup = [this](std::string_view name) -> std::optional<tensor::ConstTensor> {
    const tensor::Checkpoint::Item* const item = checkpoint_->find(name);
    if (item == nullptr) return std::nullopt;
    return item->tensor();
  };
  auto loaded = quant::load_weight(
      *quantization_,
      {.lookup = lookup, .module = module, .size = size, .allocator = memory_.host});
  if (!loaded.ok())
    return std::move(loaded).error().within(
        printable(checkpoint_->files().front().path().parent_path().string()));
  for (std::string& name : loaded->used) taken_.insert(std::move(name));
  if (loaded->disputed_zero_points) ++disputed_;
  if (loaded->weight.format().scales != quant::Format::Scales::none) take_zero_bias(module);
  return std::move(loaded->weight);
}

Result<quant::Weight> WeightSource::matrix(std::string_view own_module, quant::TrueSize size,
                                           const FusedShare& share) {
  const std::string module = names_.stored(own_module);
  const FusedParts parts(*checkpoint_, module, share.experts);
  const std::array<std::int64_t, 2> sizes{size.out, size.in};
  const auto lookup = [&](std::string_view name) -> std::optional<tensor::ConstTensor> {
    const std::string_view part = name.substr(module.size() + 1);
    auto found = parts.share(part, share.expert, share.rows);
    // The stored sizes are those of all rows.
    if (found && part == "weight_shape")
      return tensor::ConstTensor(reinterpret_cast<const std::byte*>(sizes.data()), DType::i64, {2});
    return found;
  };
  const std::string folder = printable(checkpoint_->files().front().path().parent_path().string());
  auto loaded = quant::load_weight(
      *quantization_,
      {.lookup = lookup, .module = module, .size = size, .allocator = memory_.host});
  if (!loaded.ok()) return std::move(loaded).error().within(folder);
  for (const std::string& name : loaded->used)
    taken_.insert(*parts.stored_name(std::string_view(name).substr(module.size() + 1)));
  // Blocks of rows and words of zero points must not hold rows of both halves.
  const quant::Format& format = loaded->weight.format();
  const std::int64_t rows_together = format.scales == quant::Format::Scales::block
                                         ? format.block_rows
                                     : format.zero_points ? 32
                                                          : 1;
  if (share.rows != FusedParts::Rows::all && size.out % rows_together != 0)
    return Error(ErrorCode::unsupported,
                 cat("gate and up of ", size.out, " rows share blocks of ", rows_together), module,
                 "use a checkpoint with experts of their own");
  return std::move(loaded->weight);
}

// Packers of quantised weights write biases for linears that have none. They are zeros.
void WeightSource::take_zero_bias(std::string_view stored_module) {
  const std::string name = cat(stored_module, ".bias");
  const tensor::Checkpoint::Item* const item = checkpoint_->find(name);
  if (item == nullptr || !tensor::can_widen(item->entry->dtype)) return;
  const tensor::ConstTensor stored = item->tensor();
  std::vector<float> values(static_cast<std::size_t>(stored.elements()));
  tensor::widen(stored.dtype(), stored.bytes(), 0, values);
  if (std::ranges::all_of(values, [](float value) { return value == 0; })) taken_.insert(name);
}

Result<tensor::ConstTensor> WeightSource::codes(std::string_view own_name, DType type,
                                                const tensor::Shape& shape) {
  const std::string name = names_.stored(own_name);
  const tensor::Checkpoint::Item* const item = checkpoint_->find(name);
  if (item == nullptr || item->entry->dtype != type || item->entry->shape != shape)
    return Error(ErrorCode::bad_file,
                 item == nullptr
                     ? cat("no tensor ", quote(name))
                     : cat("tensor ", quote(name), " is ", motley::name(item->entry->dtype), " ",
                           to_string(item->entry->shape), ", and ", motley::name(type), " ",
                           to_string(shape), " is needed"),
                 printable(checkpoint_->files().front().path().parent_path().string()),
                 "check that weights and config belong together");
  taken_.emplace(name);
  return item->tensor();
}

Result<quant::Weight> WeightSource::resident(const quant::Weight& weight) {
  const bool plain = weight.format().scales == quant::Format::Scales::none;
  const bool whole_vectors = weight.columns() % 8 == 0;  // as fast products read them
  if (memory_.exact || plain || whole_vectors) return quant::upload(weight, *memory_.uploader);
  ++decoded_;
  return quant::upload_decoded(weight, DType::bf16, *memory_.uploader);
}

Result<quant::Weight> WeightSource::resident_for_float32(const quant::Weight& weight) {
  if (memory_.exact) return resident(weight);
  return quant::upload_decoded(weight, DType::f32, *memory_.uploader);
}

WeightSource WeightSource::beside(quant::Uploader* uploader) const {
  const Memory memory{.host = memory_.host,
                      .device = memory_.device,
                      .uploader = uploader,
                      .exact = memory_.exact,
                      .shard = memory_.shard};
  if (random_ != nullptr) return {*random_, memory};
  return {*checkpoint_, *quantization_, memory};
}

void WeightSource::merge(WeightSource&& other) {
  taken_.merge(other.taken_);
  decoded_ += other.decoded_;
  disputed_ += other.disputed_;
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

Result<quant::Weight> transposed_rows(const tensor::ConstTensor& matrix, const TransposedRows& rows,
                                      tensor::Allocator& allocator) {
  const auto& [first, end, step] = rows;
  const std::int64_t in = matrix.dim(0);
  const std::int64_t columns = matrix.dim(1);
  const std::int64_t out = (end - first + step - 1) / step;
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
  return quant::Weight::own(quant::plain_format(matrix.dtype()), {.out = out, .in = in},
                            std::move(data));
}

}  // namespace motley::model
