#pragma once

#include <cstdint>

#include "kernels/cpu/attention_body.h"
#include "kernels/cpu/elementary_loops.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/recurrence_body.h"

// The row loops of the elementary table, for the Isa of the including file.
namespace motley::kernels::cpu::elementary_body {

// bf16 stands as its bits.
using Half = std::uint16_t;

template <class Isa>
using Floats = typename Lanes<Isa>::Floats;

// Calls body with a null pointer of the type's element.
template <class Isa, class Body>
[[gnu::always_inline]] inline void with_type(DType type, const Body& body) {
  if (type == DType::f32) {
    body(static_cast<float*>(nullptr));
  } else {
    body(static_cast<Half*>(nullptr));
  }
}

template <class Isa, class X, class Out>
void rms_norm_rows(const RmsNorm& p, std::int64_t begin, std::int64_t end) {
  using L = Lanes<Isa>;
  const std::int64_t width = p.size.width;
  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t part = 0; part < p.size.parts; ++part) {
      const X* x = static_cast<const X*>(p.x) + row * p.x_stride + part * p.x_part_stride;
      Out* out = static_cast<Out*>(p.out) + row * p.out_stride + part * p.out_part_stride;
      Floats<Isa> squares{};
      for (std::int64_t i = 0; i < width; i += L::count) {
        const Floats<Isa> value = L::read(x, i, width);
        squares += value * value;
      }
      const float mean = L::sum(squares) / static_cast<float>(width);
      const float factor = 1.0F / __builtin_sqrtf(mean + p.eps);
      for (std::int64_t i = 0; i < width; i += L::count) {
        Floats<Isa> value = L::read(x, i, width) * factor;
        if (sizeof(Out) == 2 && !p.weight_in_f32) value = L::round_bf16(value);
        L::write(out, i, width, value * L::read(p.weight, i, width));
      }
    }
  }
}

template <class Isa>
void rms_norm(const RmsNorm& p, std::int64_t begin, std::int64_t end) {
  with_type<Isa>(p.x_type, [&]<class X>(X*) {
    with_type<Isa>(p.out_type, [&]<class Out>(Out*) { rms_norm_rows<Isa, X, Out>(p, begin, end); });
  });
}

template <class Isa>
void add(const Add& p, std::int64_t begin, std::int64_t end) {
  using L = Lanes<Isa>;
  with_type<Isa>(p.a_type, [&]<class A>(A*) {
    with_type<Isa>(p.b_type, [&]<class B>(B*) {
      with_type<Isa>(p.out_type, [&]<class Out>(Out*) {
        for (std::int64_t row = begin; row < end; ++row) {
          const A* a = static_cast<const A*>(p.a) + row * p.a_stride;
          const B* b = static_cast<const B*>(p.b) + row * p.b_stride;
          Out* out = static_cast<Out*>(p.out) + row * p.out_stride;
          for (std::int64_t i = 0; i < p.width; i += L::count) {
            Floats<Isa> right = L::read(b, i, p.width);
            if (p.b_bias != nullptr) {
              right += L::read(p.b_bias, i, p.width);
              if (sizeof(B) == 2) right = L::round_bf16(right);
            }
            L::write(out, i, p.width, L::read(a, i, p.width) + right);
          }
        }
      });
    });
  });
}

template <class Isa>
void add_scaled(const AddScaled& p, std::int64_t begin, std::int64_t end) {
  using L = Lanes<Isa>;
  with_type<Isa>(p.x_type, [&]<class X>(X*) {
    for (std::int64_t row = begin; row < end; ++row) {
      const X* x = static_cast<const X*>(p.x) + row * p.x_stride;
      float* y = p.y + row * p.y_stride;
      float scale = p.scale != nullptr ? p.scale[row * p.scale_stride] : 1.0F;
      if (p.sigmoid) scale = L::sigmoid(L::all(scale))[0];
      for (std::int64_t i = 0; i < p.width; i += L::count)
        L::write(y, i, p.width, L::read(y, i, p.width) + L::read(x, i, p.width) * scale);
    }
  });
}

template <class Isa>
void round_to(const RoundTo& p, std::int64_t begin, std::int64_t end) {
  using L = Lanes<Isa>;
  with_type<Isa>(p.x_type, [&]<class X>(X*) {
    with_type<Isa>(p.out_type, [&]<class Out>(Out*) {
      for (std::int64_t row = begin; row < end; ++row) {
        const X* x = static_cast<const X*>(p.x) + row * p.x_stride;
        Out* out = static_cast<Out*>(p.out) + row * p.out_stride;
        for (std::int64_t i = 0; i < p.width; i += L::count) {
          Floats<Isa> value = L::read(x, i, p.width) * p.factor;
          if (p.bias != nullptr) value += L::read(p.bias, i, p.width);
          if (p.limit > 0) {
            value = value > p.limit ? L::all(p.limit) : value;
            value = value < -p.limit ? L::all(-p.limit) : value;
          }
          L::write(out, i, p.width, value);
        }
      }
    });
  });
}

template <class Isa, class X>
void rope_rows(const Rope& p, std::int64_t begin, std::int64_t end) {
  using L = Lanes<Isa>;
  for (std::int64_t row = begin; row < end; ++row) {
    const float* cosines = p.cos_sin + row * 2 * p.pairs;
    const float* sines = cosines + p.pairs;
    for (std::int64_t head = 0; head < p.heads; ++head) {
      X* x = static_cast<X*>(p.x) + row * p.x_stride + head * p.x_head_stride;
      if (p.interleaved) {
        for (std::int64_t i = 0; i < p.pairs; ++i) {
          // A pair is a row of two: the lanes behind it are zero and are not written.
          const Floats<Isa> pair = L::read(x + 2 * i, 0, 2);
          const Floats<Isa> crossed = {-pair[1], pair[0]};
          L::write(x + 2 * i, 0, 2, pair * cosines[i] + crossed * sines[i]);
        }
        continue;
      }
      X* second = x + p.pairs;
      for (std::int64_t i = 0; i < p.pairs; i += L::count) {
        const Floats<Isa> a = L::read(x, i, p.pairs);
        const Floats<Isa> b = L::read(second, i, p.pairs);
        const Floats<Isa> c = L::read(cosines, i, p.pairs);
        const Floats<Isa> s = L::read(sines, i, p.pairs);
        L::write(x, i, p.pairs, a * c + -b * s);
        L::write(second, i, p.pairs, b * c + a * s);
      }
    }
  }
}

template <class Isa>
void rope(const Rope& p, std::int64_t begin, std::int64_t end) {
  with_type<Isa>(p.x_type, [&]<class X>(X*) { rope_rows<Isa, X>(p, begin, end); });
}

template <class Isa>
void activate_and_multiply(const ActivateAndMultiply& p, std::int64_t begin, std::int64_t end) {
  using L = Lanes<Isa>;
  with_type<Isa>(p.type, [&]<class X>(X*) {
    with_type<Isa>(p.out_type, [&]<class Out>(Out*) {
      for (std::int64_t row = begin; row < end; ++row) {
        const X* gates = static_cast<const X*>(p.gate) + row * p.gate_stride;
        const X* ups = static_cast<const X*>(p.up) + row * p.up_stride;
        Out* out = static_cast<Out*>(p.out) + row * p.out_stride;
        for (std::int64_t i = 0; i < p.width; i += L::count) {
          Floats<Isa> gate = L::read(gates, i, p.width);
          Floats<Isa> up = L::read(ups, i, p.width);
          if (p.activation == Activation::silu) {
            L::write(out, i, p.width, gate * L::sigmoid(gate) * up);
            continue;
          }
          gate = gate > p.limit ? L::all(p.limit) : gate;
          up = up > p.limit ? L::all(p.limit) : up;
          up = up < -p.limit ? L::all(-p.limit) : up;
          L::write(out, i, p.width, gate * L::sigmoid(gate * p.alpha) * (up + 1.0F));
        }
      }
    });
  });
}

// y[i] += a * x[i]
template <class Isa>
void add_product(float a, const float* x, float* y, std::int64_t count) {
  using L = Lanes<Isa>;
  for (std::int64_t i = 0; i < count; i += L::count)
    L::write(y, i, count, L::read(y, i, count) + L::read(x, i, count) * a);
}

template <class Isa>
void combine(const Combine& p, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    float* out = p.out + row * p.out_stride;
    if (!p.accumulate) __builtin_memset(out, 0, std::size_t(p.width) * sizeof(float));
    for (std::int64_t slot = 0; slot < p.slots; ++slot) {
      const std::int64_t pair = row * p.slots + slot;
      const std::int64_t place = p.places != nullptr ? p.places[pair] : pair;
      if (place < 0 || place >= p.x_rows) continue;
      add_product<Isa>(p.weights != nullptr ? p.weights[pair] : 1.0F, p.x + place * p.x_stride, out,
                       p.width);
    }
  }
}

// 1 and the number of logits that stand before that of `id`: larger ones, and equal ones with lower
// ids.
inline std::int32_t rank_in_row(const float* logits, std::int64_t width, std::int32_t id) {
  const float own = logits[id];
  std::int32_t rank = 1;
  for (std::int64_t i = 0; i < width; ++i)
    rank += static_cast<int>(logits[i] > own) |
            (static_cast<int>(logits[i] == own) & static_cast<int>(i < id));
  return rank;
}

template <class Isa>
void log_probabilities(const LogProbabilities& p, std::int64_t begin, std::int64_t end) {
  using L = Lanes<Isa>;
  for (std::int64_t row = begin; row < end; ++row) {
    const float* logits = p.logits + row * p.logits_stride;
    const float lowest = -__builtin_huge_valf();
    float most = lowest;
    for (std::int64_t i = 0; i < p.width; ++i) {
      const float logit = logits[i] == logits[i] ? logits[i] : -lowest;
      most = logit > most ? logit : most;
    }
    // A row that holds NaN or infinity, or nothing else than minus infinity, has no distribution.
    if (most == lowest || most == -lowest) {
      for (std::int64_t i = 0; i < p.chosen; ++i) {
        p.out[row * p.chosen + i] = __builtin_nanf("");
        if (p.ranks != nullptr) p.ranks[row * p.chosen + i] = 0;
      }
      continue;
    }
    // Lanes sum runs of 1024; the runs meet in float64.
    double total = 0;
    for (std::int64_t first = 0; first < p.width; first += 1024) {
      const std::int64_t stop = first + 1024 < p.width ? first + 1024 : p.width;
      Floats<Isa> run{};
      for (std::int64_t i = first; i < stop; i += L::count) {
        Floats<Isa> shifted = L::read(logits, i, stop) - most;
        for (std::int64_t lane = stop - i; lane < L::count; ++lane) shifted[lane] = lowest;
        run += L::exp(shifted);
      }
      total += static_cast<double>(L::sum(run));
    }
    const double log_total = __builtin_log(total);
    for (std::int64_t i = 0; i < p.chosen; ++i) {
      const std::int32_t id = p.ids[row * p.chosen + i];
      const double logit = static_cast<double>(logits[id]);
      p.out[row * p.chosen + i] = static_cast<float>(logit - static_cast<double>(most) - log_total);
      if (p.ranks != nullptr) p.ranks[row * p.chosen + i] = rank_in_row(logits, p.width, id);
    }
  }
}

template <class Isa>
constexpr ElementaryLoops loops() {
  return {
      .rms_norm = rms_norm<Isa>,
      .add = add<Isa>,
      .add_scaled = add_scaled<Isa>,
      .round_to = round_to<Isa>,
      .rope = rope<Isa>,
      .activate_and_multiply = activate_and_multiply<Isa>,
      .combine = combine<Isa>,
      .log_probabilities = log_probabilities<Isa>,
      .attention = attention_body::attention<Isa>,
      .recur = recurrence_body::recur<Isa>,
      .convolve = recurrence_body::convolve<Isa>,
  };
}

}  // namespace motley::kernels::cpu::elementary_body
