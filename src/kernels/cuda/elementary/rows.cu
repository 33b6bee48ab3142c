#include "kernels/cuda/elementary/elementary.h"
#include "kernels/cuda/primitives/exponential.cuh"
#include "kernels/cuda/primitives/vec4.cuh"

// Elementwise ops, with the CPU's operations in the CPU's order and so with its bits.
namespace motley::kernels::cuda {
namespace {

template <class A, class B, class Out, bool whole>
struct AddVec4 {
  Add p;
  __device__ void operator()(std::int64_t row, std::int64_t at) const {
    const Vec4 a = load_vec4<whole>(static_cast<const A*>(p.a) + row * p.a_stride, at, p.width);
    const Vec4 b = load_vec4<whole>(static_cast<const B*>(p.b) + row * p.b_stride, at, p.width);
    const Vec4 bias = p.b_bias != nullptr ? load_vec4<whole>(p.b_bias, at, p.width) : Vec4{};
    Vec4 sum;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float right = b.at[i];
      if (p.b_bias != nullptr) right = widen(narrow<B>(right + bias.at[i]));
      sum.at[i] = a.at[i] + right;
    }
    store_vec4<whole>(static_cast<Out*>(p.out) + row * p.out_stride, at, p.width, sum);
  }
};

template <class X, bool whole>
struct AddScaledVec4 {
  AddScaled p;
  __device__ void operator()(std::int64_t row, std::int64_t at) const {
    float scale = p.scale != nullptr ? p.scale[row * p.scale_stride] : 1.0F;
    if (p.sigmoid) scale = sigmoid(scale);
    const Vec4 x = load_vec4<whole>(static_cast<const X*>(p.x) + row * p.x_stride, at, p.width);
    Vec4 y = load_vec4<whole>(p.y + row * p.y_stride, at, p.width);
#pragma unroll
    for (int i = 0; i < 4; ++i) y.at[i] = y.at[i] + x.at[i] * scale;
    store_vec4<whole>(p.y + row * p.y_stride, at, p.width, y);
  }
};

template <class X, class Out, bool whole>
struct RoundToVec4 {
  RoundTo p;
  __device__ void operator()(std::int64_t row, std::int64_t at) const {
    Vec4 x = load_vec4<whole>(static_cast<const X*>(p.x) + row * p.x_stride, at, p.width);
    const Vec4 bias = p.bias != nullptr ? load_vec4<whole>(p.bias, at, p.width) : Vec4{};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float value = x.at[i] * p.factor;
      if (p.bias != nullptr) value += bias.at[i];
      if (p.limit > 0) {
        value = value > p.limit ? p.limit : value;
        value = value < -p.limit ? -p.limit : value;
      }
      x.at[i] = value;
    }
    store_vec4<whole>(static_cast<Out*>(p.out) + row * p.out_stride, at, p.width, x);
  }
};

template <bool whole>
struct CombineVec4 {
  Combine p;
  __device__ void operator()(std::int64_t row, std::int64_t at) const {
    float* const out = p.out + row * p.out_stride;
    Vec4 sum = p.accumulate ? load_vec4<whole>(out, at, p.width) : Vec4{};
    for (std::int64_t slot = 0; slot < p.slots; ++slot) {
      const std::int64_t pair = row * p.slots + slot;
      const std::int64_t place = p.places != nullptr ? p.places[pair] : pair;
      if (place < 0 || place >= p.x_rows) continue;
      const float weight = p.weights != nullptr ? p.weights[pair] : 1.0F;
      const Vec4 x = load_vec4<whole>(p.x + place * p.x_stride, at, p.width);
#pragma unroll
      for (int i = 0; i < 4; ++i) sum.at[i] = sum.at[i] + x.at[i] * weight;
    }
    store_vec4<whole>(out, at, p.width, sum);
  }
};

// Tables whose rows have any alignment are read byte by byte.
template <class T, bool whole>
struct EmbedVec4 {
  Embed p;
  __device__ static float read_bytes(const unsigned char* from) {
    std::uint32_t bits = 0;
#pragma unroll
    for (unsigned i = 0; i < sizeof(T); ++i) bits |= std::uint32_t{from[i]} << (8 * i);
    if constexpr (sizeof(T) == sizeof(float)) {
      return __uint_as_float(bits);
    } else {
      return widen(T{static_cast<std::uint16_t>(bits)});
    }
  }
  __device__ void operator()(std::int64_t row, std::int64_t at) const {
    const std::int64_t id = p.ids[row];
    Vec4 vec4{};
    if (id >= 0 && id < p.table_rows) {
      if constexpr (whole) {
        vec4 = load_vec4<true>(static_cast<const T*>(p.table) + id * p.width, at, p.width);
      } else {
        const auto* const from = static_cast<const unsigned char*>(p.table);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (at + i < p.width)
            vec4.at[i] = read_bytes(from + (id * p.width + at + i) * std::int64_t{sizeof(T)});
        }
      }
    }
    store_vec4<whole>(p.out + row * p.out_stride, at, p.width, vec4);
  }
};

template <class T>
void launch_embed(const Embed& p, bool whole, StreamHandle stream) {
  with_flag(whole, [&](auto flag) {
    for_each_vec4("embed", p.rows, p.width, stream, EmbedVec4<T, flag.value>{p});
  });
}

}  // namespace

void add(const Add& p, StreamHandle stream) {
  const bool whole = p.width % 4 == 0 && vec4_aligned(p.a, p.a_type, p.a_stride) &&
                     vec4_aligned(p.b, p.b_type, p.b_stride) &&
                     vec4_aligned(p.b_bias, DType::f32, 0) &&
                     vec4_aligned(p.out, p.out_type, p.out_stride);
  with_type(p.a_type, [&](auto a) {
    with_type(p.b_type, [&](auto b) {
      with_type(p.out_type, [&](auto out) {
        with_flag(whole, [&](auto flag) {
          for_each_vec4("add", p.rows, p.width, stream,
                        AddVec4<decltype(a), decltype(b), decltype(out), flag.value>{p});
        });
      });
    });
  });
}

void add_scaled(const AddScaled& p, StreamHandle stream) {
  const bool whole = p.width % 4 == 0 && vec4_aligned(p.x, p.x_type, p.x_stride) &&
                     vec4_aligned(p.y, DType::f32, p.y_stride);
  with_type(p.x_type, [&](auto x) {
    with_flag(whole, [&](auto flag) {
      for_each_vec4("add_scaled", p.rows, p.width, stream,
                    AddScaledVec4<decltype(x), flag.value>{p});
    });
  });
}

void round_to(const RoundTo& p, StreamHandle stream) {
  const bool whole = p.width % 4 == 0 && vec4_aligned(p.x, p.x_type, p.x_stride) &&
                     vec4_aligned(p.bias, DType::f32, 0) &&
                     vec4_aligned(p.out, p.out_type, p.out_stride);
  with_type(p.x_type, [&](auto x) {
    with_type(p.out_type, [&](auto out) {
      with_flag(whole, [&](auto flag) {
        for_each_vec4("round_to", p.rows, p.width, stream,
                      RoundToVec4<decltype(x), decltype(out), flag.value>{p});
      });
    });
  });
}

void embed(const Embed& p, StreamHandle stream) {
  const bool whole = p.width % 4 == 0 && vec4_aligned(p.table, p.table_type, p.width) &&
                     vec4_aligned(p.out, DType::f32, p.out_stride);
  if (p.table_type == DType::f32) return launch_embed<float>(p, whole, stream);
  if (p.table_type == DType::bf16) return launch_embed<bf16>(p, whole, stream);
  launch_embed<f16>(p, whole, stream);
}

void combine(const Combine& p, StreamHandle stream) {
  const bool whole = p.width % 4 == 0 && vec4_aligned(p.x, DType::f32, p.x_stride) &&
                     vec4_aligned(p.out, DType::f32, p.out_stride);
  with_flag(whole, [&](auto flag) {
    for_each_vec4("combine", p.rows, p.width, stream, CombineVec4<flag.value>{p});
  });
}

}  // namespace motley::kernels::cuda
