#include "quant/load.h"

#include "base/cat.h"
#include "quant/formats.h"
#include "quant/readers/reader.h"

namespace motley::quant {
namespace {

using tensor::ConstTensor;

// Tensors that only quantised weights have.
constexpr std::string_view code_parts[] = {"weight_packed", "qweight"};
constexpr std::string_view scale_parts[] = {
    "weight_scale",      "weight_scale_inv", "weight_scale_2",     "weight_shape",
    "weight_zero_point", "weight_g_idx",     "weight_global_scale"};

bool is_plain(DType type) {
  return type == DType::f32 || type == DType::f16 || type == DType::bf16;
}

// A plain weight is taken as it is under any configuration: it can mean one thing only.
Result<LoadedWeight> load_plain(const Reader& reader, const ConstTensor& weight) {
  for (const std::string_view part : code_parts) {
    if (reader.has(part))
      return reader.bad("both stand for one weight", part,
                        cat("remove it or ", reader.name("weight")));
  }
  for (const std::string_view part : scale_parts) MOTLEY_TRY_VOID(reader.refuse_others({part}));
  MOTLEY_TRY_VOID(reader.check_shape(weight, "weight", {reader.out(), reader.in()}));
  return LoadedWeight{Weight::borrow(weight), {reader.name("weight")}};
}

Result<void> read(Reader& reader, const Scheme& scheme) {
  switch (scheme.layout) {
    case Layout::scaled:
      return read_scaled(reader, scheme);
    case Layout::packed:
      return read_packed(reader, scheme);
    case Layout::fp4:
      return read_fp4(reader, scheme);
    case Layout::gptq:
    case Layout::gptq_v2:
      return read_gptq(reader, scheme);
    case Layout::awq:
      return read_awq(reader, scheme);
  }
  return {};
}

}  // namespace

Result<LoadedWeight> load_weight(const Config& config, const WeightRequest& request) {
  Reader reader(request, config.method());
  const std::optional<ConstTensor> plain = reader.find("weight");
  if (plain && is_plain(plain->dtype())) return load_plain(reader, *plain);

  std::string_view codes = "weight";
  for (const std::string_view part : code_parts) {
    if (!reader.has(part)) continue;
    if (plain)
      return reader.bad("both stand for one weight", part,
                        cat("remove it or ", reader.name("weight")));
    codes = part;
  }
  if (!reader.has(codes))
    return Error(ErrorCode::bad_file, "the weight is missing", reader.name("weight"),
                 "download the checkpoint again");
  const std::optional<Scheme> scheme = config.scheme_of(request.module);
  if (!scheme)
    return reader.bad(
        cat("its type is ", name(reader.find(codes)->dtype()), ", but quantization_config (",
            config.method(), ") leaves this module plain"),
        codes);
  reader.parts().format = scheme->format;
  MOTLEY_TRY_VOID(read(reader, *scheme));
  if (!is_known(reader.parts().format))
    return Error(ErrorCode::unsupported,
                 cat("weights in ", to_string(reader.parts().format), " can't be computed with"),
                 cat("tensor ", quote(reader.name(codes))),
                 "see docs/guide/supported.md for the formats that can");
  return std::move(reader).finish();
}

}  // namespace motley::quant
