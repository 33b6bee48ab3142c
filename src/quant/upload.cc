#include "quant/upload.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/check.h"
#include "tensor/convert.h"

namespace motley::quant {
namespace {

// Numbers that are decoded at a time.
constexpr std::int64_t decoded_at_once = std::int64_t{1} << 18;

}  // namespace

Result<std::unique_ptr<Uploader>> Uploader::create(tensor::Device& device,
                                                   const tensor::Staging::Options& pieces) {
  std::unique_ptr<Uploader> made(new Uploader());
  made->device_ = &device;
  MOTLEY_TRY(made->stream_, device.create_stream());
  MOTLEY_TRY(made->staging_, tensor::Staging::create(device, pieces));
  return made;
}

Result<void> Uploader::copy(void* to, const void* from, std::size_t bytes) {
  return staging_->copy(*stream_, to, from, bytes);
}

Result<tensor::Buffer> Uploader::copy(const void* from, std::size_t bytes) {
  MOTLEY_TRY(tensor::Buffer buffer, device_->allocate((bytes + 3) / 4 * 4));
  MOTLEY_TRY_VOID(copy(buffer.data(), from, bytes));
  return buffer;
}

Result<Weight> upload(const Weight& weight, Uploader& to) {
  const kernels::WeightView& view = weight.view();
  Weight::Parts parts{.format = weight.format(),
                      .size = {weight.out(), weight.in()},
                      .columns = weight.columns(),
                      .input_scale = view.inputs.scale,
                      .input_zero = view.inputs.zero,
                      .input_first = view.inputs.first};
  const auto copy = [&](const void* from, std::size_t bytes) -> Result<const std::byte*> {
    MOTLEY_TRY(tensor::Buffer buffer, to.copy(from, bytes));
    parts.owned.push_back(std::move(buffer));
    return static_cast<const std::byte*>(parts.owned.back().data());
  };
  MOTLEY_TRY(parts.data, copy(view.data, weight.data_bytes()));
  if (view.scales != nullptr) {
    const auto width = static_cast<std::size_t>(bits(weight.format().scale_type)) / 8;
    MOTLEY_TRY(parts.scales, copy(view.scales, weight.scale_count() * width));
    parts.scale_factor = view.scale_factor;
  }
  if (view.zero_points != nullptr) {
    MOTLEY_TRY(const std::byte* const zeros, copy(view.zero_points, weight.scale_count()));
    parts.zero_points = reinterpret_cast<const std::uint8_t*>(zeros);
  }
  if (view.input_order != nullptr) {
    const auto bytes = static_cast<std::size_t>(weight.columns()) * sizeof(std::int32_t);
    MOTLEY_TRY(const std::byte* const order, copy(view.input_order, bytes));
    parts.input_order = weight.input_order();
    parts.input_order_there = reinterpret_cast<const std::int32_t*>(order);
  }
  return Weight(std::move(parts));
}

Result<Weight> upload_decoded(const Weight& weight, DType dtype, Uploader& to) {
  MOTLEY_CHECK(dtype == DType::f32 || dtype == DType::bf16, "decoded to f32 or bf16");
  const Format plain = plain_format(dtype);
  const std::int64_t in = weight.in();
  const std::int64_t row_bytes = in * plain.bits / 8;
  MOTLEY_TRY(tensor::Buffer data,
             to.device().allocate(static_cast<std::size_t>(weight.out() * row_bytes)));
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, decoded_at_once / in);
  std::vector<float> decoded(static_cast<std::size_t>(rows_at_once * in));
  std::vector<std::byte> narrowed(static_cast<std::size_t>(rows_at_once * row_bytes));
  for (std::int64_t begin = 0; begin < weight.out(); begin += rows_at_once) {
    const std::int64_t end = std::min(begin + rows_at_once, weight.out());
    weight.decode(begin, end, decoded.data());
    const auto numbers = std::span(decoded).first(static_cast<std::size_t>((end - begin) * in));
    tensor::narrow(dtype, numbers, narrowed.data());
    MOTLEY_TRY_VOID(to.copy(data.data() + begin * row_bytes, narrowed.data(),
                            static_cast<std::size_t>((end - begin) * row_bytes)));
  }
  return Weight::own(plain, {weight.out(), in}, std::move(data));
}

}  // namespace motley::quant
