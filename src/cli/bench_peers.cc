#include "cli/bench_peers.h"

#include <array>

namespace motley::cli {
namespace {

// 0: not measured.
struct DecodeRow {
  std::string_view format;
  std::int64_t layers;
  int adapters;
  std::array<double, 6> ms;  // at 1, 8, 32, 64, 128, 256 sequences
};
constexpr std::array<std::int64_t, 6> batches = {1, 8, 32, 64, 128, 256};
constexpr std::string_view measured_shape = "qwen3-30b-a3b";

// GPU time of forward, head and sampling. The rows with adapters at 16 layers are those of its best
// switches.
constexpr std::array decode_rows = {
    DecodeRow{"bf16", 48, 0, {4.13, 9.12, 16.18, 18.95, 21.16, 26.34}},
    DecodeRow{"bf16", 48, 1, {7.26, 12.53, 20.13, 23.07, 26.12, 32.40}},
    DecodeRow{"bf16", 48, 4, {0, 13.04, 20.82, 24.91, 27.88, 34.48}},
    DecodeRow{"bf16", 16, 0, {1.49, 3.18, 5.47, 6.41, 7.15, 8.97}},
    DecodeRow{"bf16", 16, 1, {2.33, 4.17, 6.31, 7.36, 8.55, 10.76}},
    DecodeRow{"bf16", 16, 4, {0, 4.39, 6.68, 7.95, 9.23, 11.59}},
    DecodeRow{"bf16", 16, 32, {0, 0, 8.84, 10.45, 12.24, 0}},
    DecodeRow{"w4a16", 16, 0, {1.50, 2.20, 3.28, 3.85, 4.71, 7.11}},
    DecodeRow{"w4a16", 16, 1, {2.55, 3.31, 4.67, 5.48, 6.73, 9.37}},
    DecodeRow{"w4a16", 16, 4, {0, 3.52, 4.96, 6.22, 8.28, 11.09}},
};

// 8 sequences of 1024 tokens.
struct PrefillRow {
  std::string_view format;
  std::int64_t layers;
  int adapters;
  double ms;
};
constexpr std::array prefill_rows = {
    PrefillRow{"bf16", 16, 0, 36.8},  PrefillRow{"bf16", 16, 1, 57.8},
    PrefillRow{"bf16", 16, 4, 58.5},  PrefillRow{"bf16", 16, 32, 72.1},
    PrefillRow{"bf16", 48, 0, 115.5}, PrefillRow{"bf16", 48, 1, 172},
    PrefillRow{"bf16", 48, 4, 174},   PrefillRow{"w4a16", 16, 0, 55.7},
    PrefillRow{"w4a16", 16, 4, 79.3},
};

}  // namespace

std::optional<double> peer_ms(const PeerCase& wanted) {
  if (wanted.shape != measured_shape) return std::nullopt;
  const auto fits = [&](const auto& row) {
    return row.format == wanted.format && row.layers == wanted.layers &&
           row.adapters == wanted.adapters;
  };
  if (wanted.tokens == 1) {
    for (const DecodeRow& row : decode_rows) {
      if (!fits(row)) continue;
      for (std::size_t i = 0; i < batches.size(); ++i)
        if (batches[i] == wanted.sequences && row.ms[i] > 0) return row.ms[i];
    }
  } else if (wanted.tokens == 1024 && wanted.sequences == 8) {
    for (const PrefillRow& row : prefill_rows)
      if (fits(row)) return row.ms;
  }
  return std::nullopt;
}

}  // namespace motley::cli
