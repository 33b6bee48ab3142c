#include "quant/load.h"

#include <cmath>
#include <cstring>

#include "base/cat.h"
#include "tensor/convert.h"

namespace motley::quant {
namespace {

using tensor::ConstTensor;

// What a weight is made of, and the error where its parts don't fit.
class Loader {
 public:
  Loader(const Config& config, Lookup lookup, std::string_view module, TrueSize size,
         tensor::Allocator& allocator)
      : config_(config), lookup_(lookup), module_(module), size_(size), allocator_(allocator) {}

  Result<LoadedWeight> load() {
    const auto plain = lookup_(name("weight"));
    const auto packed = lookup_(name("weight_packed"));
    if (plain && packed)
      return bad("both stand for one weight", "weight_packed",
                 cat("remove it or ", name("weight")));
    if (packed) return load_packed(*packed);
    if (!plain)
      return Error(ErrorCode::bad_file, "the weight is missing", name("weight"),
                   "download the checkpoint again");
    if (plain->dtype() == DType::f8_e4m3) return load_f8(*plain);
    return load_plain(*plain);
  }

 private:
  std::string name(std::string_view part) const { return cat(module_, ".", part); }

  Error bad(std::string what, std::string_view part, std::string fix = {}) const {
    if (fix.empty()) fix = "the checkpoint does not fit its config.json: download it again";
    return {ErrorCode::bad_file, std::move(what), cat("tensor ", quote(name(part))),
            std::move(fix)};
  }

  // Parts that belong to schemes that are not read must not be left over in silence.
  Result<void> refuse_parts(std::initializer_list<std::string_view> parts) {
    for (const std::string_view part : parts) {
      if (lookup_(name(part)))
        return Error(ErrorCode::unsupported, "this weight's scheme is not one that motley reads",
                     cat("tensor ", quote(name(part))),
                     cat("config.json says ", config_.method_name(),
                         "; check that it belongs to this checkpoint"));
    }
    return {};
  }

  Result<void> check_shape(const ConstTensor& tensor, std::string_view part, std::int64_t rows,
                           std::int64_t columns) const {
    if (tensor.shape() == tensor::Shape{rows, columns}) return {};
    return bad(cat("its shape is ", tensor::to_string(tensor.shape()), ", and [", rows, ", ",
                   columns, "] is needed for a weight of [", size_.out, ", ", size_.in, "]"),
               part);
  }

  Result<LoadedWeight> load_plain(const ConstTensor& weight) {
    MOTLEY_TRY_VOID(refuse_parts({"weight_scale", "weight_scale_inv", "weight_shape",
                                  "weight_zero_point", "weight_g_idx", "weight_global_scale"}));
    const DType type = weight.dtype();
    if (type != DType::f32 && type != DType::f16 && type != DType::bf16)
      return Error(ErrorCode::unsupported, cat("a weight of type ", motley::name(type)),
                   cat("tensor ", quote(name("weight"))), "use f32, f16 or bf16");
    MOTLEY_TRY_VOID(check_shape(weight, "weight", size_.out, size_.in));
    return LoadedWeight{Weight::borrow(weight), {name("weight")}};
  }

  Result<LoadedWeight> load_f8(const ConstTensor& weight) {
    if (config_.method() != Config::Method::fp8)
      return bad(cat("FP8, but quantization_config says ", config_.method_name()), "weight");
    MOTLEY_TRY_VOID(refuse_parts({"weight_scale", "input_scale", "activation_scale"}));
    const Format format = config_.format_of(module_).value();
    MOTLEY_TRY_VOID(check_shape(weight, "weight", size_.out, size_.in));
    const auto scales = lookup_(name("weight_scale_inv"));
    if (!scales) return bad("its scales are missing", "weight_scale_inv");
    MOTLEY_TRY_VOID(check_shape(*scales, "weight_scale_inv", blocks(size_.out, format.block_rows),
                                blocks(size_.in, format.block_columns)));
    MOTLEY_TRY(tensor::Buffer widened, widen_scales(*scales, "weight_scale_inv"));
    return LoadedWeight{Weight::borrow(format, size_, weight.bytes(), std::move(widened)),
                        {name("weight"), name("weight_scale_inv")}};
  }

  Result<LoadedWeight> load_packed(const ConstTensor& packed) {
    const std::optional<Format> format = config_.format_of(module_);
    if (config_.method() != Config::Method::compressed_tensors || !format)
      return bad(cat("packed, but quantization_config (", config_.method_name(),
                     ") leaves this module plain"),
                 "weight_packed");
    MOTLEY_TRY_VOID(refuse_parts({"weight_zero_point", "weight_g_idx", "weight_global_scale"}));
    MOTLEY_TRY_VOID(check_true_size());
    if (packed.dtype() != DType::i32)
      return bad(cat("its type is ", motley::name(packed.dtype()), ", not I32"), "weight_packed");
    const std::int64_t words = blocks(size_.in, 8);
    MOTLEY_TRY_VOID(check_shape(packed, "weight_packed", size_.out, words));
    const auto scales = lookup_(name("weight_scale"));
    if (!scales) return bad("its scales are missing", "weight_scale");
    MOTLEY_TRY_VOID(
        check_shape(*scales, "weight_scale", size_.out, blocks(size_.in, format->block_columns)));
    MOTLEY_TRY(tensor::Buffer widened, widen_scales(*scales, "weight_scale"));
    LoadedWeight loaded;
    loaded.used = {name("weight_packed"), name("weight_scale"), name("weight_shape")};
    // The file's words are the kernels' bytes already, unless a row ends inside a word.
    if (size_.in % 8 == 0) {
      loaded.weight = Weight::borrow(*format, size_, packed.bytes(), std::move(widened));
      return loaded;
    }
    const std::int64_t row_bytes = (size_.in + 1) / 2;
    MOTLEY_TRY(tensor::Buffer data,
               allocator_.allocate(static_cast<std::size_t>(size_.out * row_bytes)));
    for (std::int64_t row = 0; row < size_.out; ++row)
      std::memcpy(data.data() + row * row_bytes, packed.bytes() + row * words * 4,
                  static_cast<std::size_t>(row_bytes));
    loaded.weight = Weight::own(*format, size_, std::move(data), std::move(widened));
    return loaded;
  }

  // The packed sizes can't tell how much of the last word is real: the file says it apart.
  Result<void> check_true_size() {
    const auto shape = lookup_(name("weight_shape"));
    if (!shape) return bad("the true size of a packed weight is missing", "weight_shape");
    if (shape->elements() != 2 || (shape->dtype() != DType::i64 && shape->dtype() != DType::i32))
      return bad("not two integers", "weight_shape");
    std::int64_t sizes[2] = {};
    for (int i = 0; i < 2; ++i) {
      if (shape->dtype() == DType::i64) {
        std::memcpy(&sizes[i], shape->bytes() + std::ptrdiff_t{8} * i, 8);
      } else {
        std::int32_t narrow = 0;
        std::memcpy(&narrow, shape->bytes() + std::ptrdiff_t{4} * i, 4);
        sizes[i] = narrow;
      }
    }
    if (sizes[0] != size_.out || sizes[1] != size_.in)
      return bad(cat("it says [", sizes[0], ", ", sizes[1], "], but the model needs [", size_.out,
                     ", ", size_.in, "]"),
                 "weight_shape");
    return {};
  }

  Result<tensor::Buffer> widen_scales(const ConstTensor& scales, std::string_view part) {
    const DType type = scales.dtype();
    if (type != DType::f32 && type != DType::f16 && type != DType::bf16 && type != DType::f8_e8m0)
      return bad(cat("scales of type ", motley::name(type)), part);
    const auto count = static_cast<std::size_t>(scales.elements());
    MOTLEY_TRY(tensor::Buffer buffer, allocator_.allocate(count * sizeof(float)));
    const std::span out(reinterpret_cast<float*>(buffer.data()), count);
    tensor::widen(type, scales.bytes(), 0, out);
    for (const float scale : out) {
      if (!std::isfinite(scale)) return bad("a scale that is not finite", part);
    }
    return buffer;
  }

  static std::int64_t blocks(std::int64_t length, std::int64_t block) {
    return (length + block - 1) / block;
  }

  const Config& config_;
  Lookup lookup_;
  std::string_view module_;
  TrueSize size_;
  tensor::Allocator& allocator_;
};

}  // namespace

Result<LoadedWeight> load_weight(const Config& config, Lookup lookup, std::string_view module,
                                 TrueSize size, tensor::Allocator& allocator) {
  return Loader(config, lookup, module, size, allocator).load();
}

}  // namespace motley::quant
