// vLLM 0.26.0 on one H200 (us a layer; the record of 2026-11-21), and what is aimed at.
#pragma once

#include <cstdint>

namespace expert_layer_bench {

struct Peer {
  std::int64_t tokens;
  // without adapters, with 4, with 32
  double bf16, bf16_4, bf16_32, int4, int4_4;
};
inline constexpr Peer peers[] = {
    {1, 32.6, 75.3, 74.1, 31.8, 74.7},       {8, 132.0, 182.9, 181.4, 69.8, 120.8},
    {32, 259.2, 331.3, 315.4, 122.1, 196},   {64, 295.9, 391.9, 381.5, 136.6, 250.4},
    {128, 301, 405.4, 489.8, 147.3, 329.9},  {256, 326.2, 458.2, 697.2, 208, 413.1},
    {512, 331.3, 550.4, 1067, 266.5, 493.8}, {1024, 389.1, 721.5, 2131, 478.1, 821.4},
    {2048, 511.8, 894.6, 2540, 789.5, 1198}, {4096, 885.8, 1325, 3017, 1413, 1951},
    {8192, 1596.6, 2354, 3901, 2657, 3606}};

// 0: not measured.
inline double peer_us(std::int64_t tokens, bool bf16, int adapters) {
  for (const Peer& p : peers) {
    if (p.tokens != tokens) continue;
    if (adapters == 0) return bf16 ? p.bf16 : p.int4;
    if (adapters <= 4) return bf16 ? p.bf16_4 : p.int4_4;
    if (adapters == 32) return bf16 ? p.bf16_32 : 0;
  }
  return 0;
}

}  // namespace expert_layer_bench
