#include "quant/upload.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/check.h"
#include "tensor/convert.h"

namespace motley::quant {
namespace {

std::int64_t blocks(std::int64_t length, std::int64_t block) {
  return (length + block - 1) / block;
}

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
  MOTLEY_TRY(tensor::Buffer buffer, device_->allocate(bytes));
  MOTLEY_TRY_VOID(copy(buffer.data(), from, bytes));
  return buffer;
}

std::size_t data_bytes(const Weight& weight) {
  const std::int64_t row_bytes = (weight.in() * weight.format().bits + 7) / 8;
  return static_cast<std::size_t>(weight.out() * row_bytes);
}

std::size_t scale_count(const Weight& weight) {
  const Format& format = weight.format();
  if (format.scales == Format::Scales::none) return 0;
  return static_cast<std::size_t>(blocks(weight.out(), format.block_rows) *
                                  blocks(weight.in(), format.block_columns));
}

Result<Weight> upload(const Weight& weight, Uploader& to) {
  MOTLEY_TRY(tensor::Buffer data, to.copy(weight.view().data, data_bytes(weight)));
  tensor::Buffer scales;
  if (const std::size_t count = scale_count(weight); count > 0) {
    MOTLEY_TRY(scales, to.copy(weight.view().scales, count * sizeof(float)));
  }
  return Weight::own(weight.format(), {weight.out(), weight.in()}, std::move(data),
                     std::move(scales));
}

Result<Weight> upload_decoded(const Weight& weight, DType dtype, Uploader& to) {
  MOTLEY_CHECK(dtype == DType::f32 || dtype == DType::bf16, "decoded to f32 or bf16");
  const Format plain{.element = dtype, .bits = bits(dtype)};
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
  return Weight::own(plain, {weight.out(), in}, std::move(data), {});
}

}  // namespace motley::quant
