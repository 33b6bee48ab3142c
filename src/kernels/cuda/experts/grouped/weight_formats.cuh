// The weight formats of the grouped GEMMs, as traits for the load stage and the products. Tokens
// stay bf16, or are codes like the weights.
#pragma once

#include "kernels/cuda/experts/grouped/decoders.cuh"
#include "kernels/cuda/experts/packed_layout.h"

namespace motley::kernels::cuda::grouped {

template <ExpertFormat format>
struct DecoderOf;
template <>
struct DecoderOf<ExpertFormat::int4> : std::type_identity<Int4Decoder<1>> {};
template <>
struct DecoderOf<ExpertFormat::int4_fine> : std::type_identity<Int4Decoder<4>> {};
template <>
struct DecoderOf<ExpertFormat::int4_any> : std::type_identity<AnyInt4Decoder<1>> {};
template <>
struct DecoderOf<ExpertFormat::int4_any_fine> : std::type_identity<AnyInt4Decoder<4>> {};
template <>
struct DecoderOf<ExpertFormat::int8> : std::type_identity<Int8Decoder> {};
template <>
struct DecoderOf<ExpertFormat::int8_any_fine> : std::type_identity<AnyInt8Decoder<4>> {};
template <>
struct DecoderOf<ExpertFormat::fp8> : std::type_identity<Fp8Decoder<1>> {};
template <>
struct DecoderOf<ExpertFormat::fp8_fine> : std::type_identity<Fp8Decoder<4>> {};
template <>
struct DecoderOf<ExpertFormat::mxfp8> : std::type_identity<Mxfp8Decoder> {};
template <>
struct DecoderOf<ExpertFormat::mxfp4> : std::type_identity<Mxfp4Decoder> {};
template <>
struct DecoderOf<ExpertFormat::nvfp4> : std::type_identity<Nvfp4Decoder> {};

// Where scales are bf16, of formats that can have f16, too. Numbers have the same bits: the second
// part of a scale in bf16 is zero.
template <ExpertFormat format>
struct Bf16DecoderOf : DecoderOf<format> {};
template <>
struct Bf16DecoderOf<ExpertFormat::int4_any> : std::type_identity<ZeroedInt4Decoder<1>> {};
template <>
struct Bf16DecoderOf<ExpertFormat::int4_any_fine> : std::type_identity<ZeroedInt4Decoder<4>> {};

struct Bf16Weights {
  static constexpr ExpertFormat format = ExpertFormat::bf16;
  static constexpr BlobLayout layout = blob_layout(format);
  static constexpr OperandSource source = OperandSource::shared_memory;
  using Decoder = void;
  using Bf16Decoder = void;
  static constexpr float unit = 1;
  static constexpr DType code_type = DType::bf16;
  static constexpr int stage_k = 64;
  static constexpr int block_bytes = 8192;  // 64 rows of a stage
};

template <ExpertFormat format_>
struct CodedWeights {
  static constexpr ExpertFormat format = format_;
  static constexpr BlobLayout layout = blob_layout(format);
  static constexpr OperandSource source = OperandSource::registers;
  using Decoder = typename DecoderOf<format>::type;
  using Bf16Decoder = typename Bf16DecoderOf<format>::type;
  static_assert(Decoder::unit == Bf16Decoder::unit);
  static constexpr float unit = Decoder::unit;     // weights are decoded times this
  static constexpr DType code_type = DType::bf16;  // of token rows
  static constexpr int stage_k = 128;
  static constexpr int block_bytes = layout.bytes();
};

// Rows of codes, where token rows are codes of their type.
template <ExpertFormat format_>
struct CodedRows {
  static constexpr ExpertFormat format = format_;
  static constexpr BlobLayout layout = blob_layout(format);
  static constexpr OperandSource source = OperandSource::shared_memory;
  using Decoder = void;
  using Bf16Decoder = void;
  static constexpr float unit = 1;
  static constexpr DType code_type = format == ExpertFormat::fp8_rows ? DType::f8_e4m3 : DType::i8;
  static constexpr int stage_k = 128;
  static constexpr int block_bytes = layout.bytes() / 2;
};

template <class Format>
concept PackedFormat = requires {
  Format::format;
  Format::layout;
  Format::source;
  typename Format::Decoder;
  typename Format::Bf16Decoder;
  Format::unit;
  Format::code_type;
  Format::stage_k;
  Format::block_bytes;
} && Format::stage_k % 64 == 0 && Format::block_bytes % 16 == 0;

}  // namespace motley::kernels::cuda::grouped
