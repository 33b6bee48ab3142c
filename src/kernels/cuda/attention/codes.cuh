// Keys and values as codes of 8 bits: the warps that copy blocks to shared memory widen them to
// bf16 on the way. The consumers are those of bf16 pages, and the sums have the same bits as over
// pages of bf16 with the numbers that the codes mean.
#pragma once

#include "kernels/cuda/attention/produce.cuh"
#include "kernels/kv_codes.h"

namespace motley::kernels::cuda::tiles {

// `unit_rows` rows are copied at a time, `units_ahead` units before they are widened; until then
// they wait in shared memory of their warp: codes and exponents.
template <int key_columns, int value_columns, int packed_rows>
struct FewCodes : FewShape<key_columns, value_columns, packed_rows> {
  using Base = FewShape<key_columns, value_columns, packed_rows>;
  static_assert(!Base::latent);
  static constexpr bool coded = true;
  // Shared memory holds no more units of wide heads.
  static constexpr int copy_warps_each = key_columns > 256 ? 2 : Base::copy_warps_each;
  static constexpr int threads = Base::consumers + 2 * copy_warps_each * 32;
  static constexpr int block_arrivals = copy_warps_each;
  static constexpr int unit_rows = 16;
  static constexpr int units_ahead = key_columns == 64 ? 3 : key_columns > 256 ? 1 : 2;
  static constexpr int blocks_per_sm = 1;
  static constexpr int consumer_registers = 240;
  static constexpr int producer_registers = 128;
  // Units take the place of blocks in the ring.
  static constexpr int key_slots = key_columns > 256   ? 1
                                   : key_columns > 128 ? 2
                                   : key_columns == 64 ? 8
                                   : packed_rows <= 8  ? 5
                                                       : 4;
  static constexpr int value_slots = key_slots;
  static constexpr int ring_bytes = key_slots * Base::stage_bytes;
  static_assert(key_slots >= Base::blocks_together);
  static constexpr int unit_bytes = units_ahead * unit_rows * (key_columns + 1);  // of a warp
  static constexpr int shared_bytes =
      1024 + ring_bytes + Base::other_bytes + 2 * copy_warps_each * unit_bytes;
  static_assert(shared_bytes + schedule_bytes <= 227 * 1024);
};

// Keys and values have a warp each.
template <int key_columns, int value_columns>
struct ManyCodes : Shape<key_columns, value_columns, true> {
  using Base = Shape<key_columns, value_columns, true>;
  static_assert(!Base::latent);
  static constexpr bool coded = true;
  static constexpr int copy_warps_each = 1;
  static constexpr int block_arrivals = copy_warps_each;
  static constexpr int consumer_registers = 224;
  static constexpr int producer_registers = 56;
  static constexpr int unit_rows = 16;
  static constexpr int units_ahead = key_columns > 256 ? 1 : 6;
  static constexpr int key_slots = Base::value_slots;
  static constexpr int value_slots = Base::value_slots;
  static constexpr int ring_bytes =
      (key_slots * Base::key_panels + value_slots * Base::value_panels) * Base::panel_bytes;
  static constexpr int unit_bytes = units_ahead * unit_rows * (key_columns + 1);
  static constexpr int shared_bytes =
      1024 + Base::query_buffers * Base::query_bytes + ring_bytes + 2 * unit_bytes;
  static_assert(shared_bytes + schedule_bytes <= 227 * 1024);
  // A block has what it was launched with: threads that ask for more wait for ever.
  static constexpr int launch_registers = 65536 / Base::threads / 8 * 8 * Base::threads;
  static_assert(consumer_registers * Base::consumers +
                    producer_registers * (Base::threads - Base::consumers) <=
                launch_registers);
};

// Two codes as bf16, scaled. The codes are the high bytes of both halves. Their exponents and
// mantissas in the places of bf16 count 2^-120 times as much, subnormal numbers too, for which the
// factor makes up. No code that is stored is NaN.
__device__ inline std::uint32_t widen_codes(std::uint32_t high_bytes, std::uint32_t factor) {
  const std::uint32_t pair = (high_bytes & 0x80008000U) | ((high_bytes >> 4) & 0x07F007F0U);
  const __nv_bfloat162 value = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&pair),
                                       *reinterpret_cast<const __nv_bfloat162*>(&factor));
  return *reinterpret_cast<const std::uint32_t*>(&value);
}
__device__ inline uint4 widen_codes_x8(std::uint32_t low, std::uint32_t high,
                                       std::uint32_t factor) {
  return make_uint4(widen_codes(__byte_perm(low, 0, 0x1404), factor),
                    widen_codes(__byte_perm(low, 0, 0x3424), factor),
                    widen_codes(__byte_perm(high, 0, 0x1404), factor),
                    widen_codes(__byte_perm(high, 0, 0x3424), factor));
}
// 2^(exponent - 127 + 120) in bf16, twice. kv_codes.h bounds exponents so that it is one.
__device__ inline std::uint32_t code_factor(std::uint32_t exponent) {
  return exponent == nan_kv_exponent ? 0x7FC07FC0U : (exponent + 120U) * 0x00800080U;
}

// Rows of one page that a warp loads together: 16 codes of a row a lane.
template <class S, bool keys>
struct CodeRows {
  static constexpr int columns = keys ? S::key_width : S::value_width;
  static constexpr int lanes_of_row = columns / 16;
  static constexpr int rows_at_once = 32 / lanes_of_row;
  static constexpr int loads = S::unit_rows / rows_at_once;
  static_assert(32 % lanes_of_row == 0 && S::unit_rows % rows_at_once == 0, "no lane is left over");

  const std::uint8_t* codes;  // of this lane, in the first rows
  std::int64_t stride;
  const std::uint8_t* exponents;  // of the first row

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int row(int load) { return load * rows_at_once + lane() / lanes_of_row; }

  // `token` is the first row's place in its page.
  __device__ CodeRows(const TileParams& p, std::int64_t page, int token, int kv_head) {
    const PageView& view = keys ? p.keys : p.values;
    const std::int64_t first = page * view.page_stride;
    codes = reinterpret_cast<const std::uint8_t*>(view.data) + first + token * view.token_stride +
            kv_head * view.head_stride + lane() % lanes_of_row * 16 +
            lane() / lanes_of_row * view.token_stride;
    stride = rows_at_once * view.token_stride;
    exponents =
        (keys ? p.key_exponents : p.value_exponents) + first + kv_head * p.page_tokens + token;
  }
  __device__ const std::uint8_t* at(int load) const { return codes + load * stride; }

  // Writes 16 codes of a row to a block; its columns begin at `to`.
  __device__ static void widen(const uint4& vec16, std::uint32_t to, int row,
                               std::uint32_t factor) {
    const int column = lane() % lanes_of_row;
    // Lanes whose panels are neighbours write their halves in turn, so that they use all banks.
    const bool swaps = column / 4 % 2 != 0;
    const uint4 low = widen_codes_x8(vec16.x, vec16.y, factor);
    const uint4 high = widen_codes_x8(vec16.z, vec16.w, factor);
    const std::uint32_t panel = to + column / 4 * S::panel_bytes;
    const int chunk = column % 4 * 2;
    store_shared_16(panel + swizzled(row, swaps ? chunk + 1 : chunk, 128), swaps ? high : low);
    store_shared_16(panel + swizzled(row, swaps ? chunk : chunk + 1, 128), swaps ? low : high);
  }
};

// The factor of row `lane`, 0 outside [low, high): those rows become zeros.
__device__ inline std::uint32_t factor_of_row(std::uint32_t exponent, int low, int high) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return lane >= low && lane < high ? code_factor(exponent) : 0;
}

// A unit that waits in shared memory, where each lane reads what it copied, and all the exponents.
template <class S, bool keys>
struct CodeUnit {
  using Rows = CodeRows<S, keys>;
  static constexpr int code_bytes = S::unit_rows * Rows::columns;
  static constexpr int bytes = code_bytes + S::unit_rows;
  static_assert(S::unit_rows == 16);
  std::uint32_t base;

  __device__ std::uint32_t own(int load) const { return base + load * 512 + Rows::lane() * 16; }
  __device__ void load(const Rows& rows) const {
    __syncwarp();  // no lane still reads the exponents of the unit before
#pragma unroll
    for (int i = 0; i < Rows::loads; ++i) copy_16(own(i), rows.at(i));
    if (Rows::lane() == 0) copy_16(base + code_bytes, rows.exponents);
  }
  // Once the copies of this lane have landed.
  __device__ void store(std::uint32_t to, int low, int high) const {
    __syncwarp();
    const std::uint32_t own_factor =
        factor_of_row(load_shared_u8(base + code_bytes + Rows::lane() % S::unit_rows), low, high);
#pragma unroll
    for (int i = 0; i < Rows::loads; ++i)
      Rows::widen(load_shared_16(own(i)), to, Rows::row(i),
                  __shfl_sync(0xFFFFFFFF, own_factor, Rows::row(i)));
  }
};

// An item's keys or values by units, of which a warp has every block's from `role` on. Page numbers
// are read one unit ahead of their rows. Only rows that this step writes wait for the previous
// grid.
template <class S, bool keys>
struct CodeUnits {
  using Rows = CodeRows<S, keys>;
  static constexpr int own = S::block / S::unit_rows / S::copy_warps_each;  // of a block
  const TileParams& p;
  const Item& item;
  const std::int32_t* table;
  int first, role, count;

  __device__ CodeUnits(const TileParams& params, const Item& own_item, int warp)
      : p(params),
        item(own_item),
        table(params.table + own_item.sequence * params.table_stride),
        role(warp) {
    const Stretch stretch = stretch_of<S>(item, item.chunk);
    first = stretch.first;
    count = (stretch.last - stretch.first + S::block - 1) / S::block * own;
  }
  // The unit's first row in its block.
  __device__ int place_of(int unit) const { return (role * own + unit % own) * S::unit_rows; }
  __device__ int position_of(int unit) const {
    return first + unit / own * S::block + place_of(unit);
  }
  // Table entries without positions of the tile are not read; page 0 is there.
  __device__ int page_of(int unit) const {
    const int position = position_of(unit);
    const bool needed = unit < count && position + S::unit_rows > item.begin && position < item.end;
    return needed ? table[position >> p.page_shift] : 0;
  }
  __device__ Rows rows_of(int unit, int page) const {
    const int position = position_of(unit);
    if (position + S::unit_rows > item.first_position) wait_for_previous_grid();
    return Rows(p, page, position & ((1 << p.page_shift) - 1), item.kv_head);
  }

  template <class R>
  __device__ void begin(int unit, R& ring) const {
    if (unit % own == 0) bar_wait(ring.free(), ring.parity ^ 1);
  }
  template <class Unit, class R>
  __device__ void store(const Unit& unit, int index, R& ring) const {
    const int position = position_of(index);
    unit.store(ring.block() + place_of(index) * 128, item.begin - position, item.end - position);
  }
  template <class R>
  __device__ void end(int unit, R& ring) const {
    if (unit % own != own - 1) return;
    fence_async_shared();
    __syncwarp();
    if (Rows::lane() == 0) bar_arrive(ring.full());
    ring.next();
  }
};

// Loads and widens an item's keys or values with S::copy_warps_each warps, of which this is `role`.
// Units wait at `waiting`, in shared memory of the warp.
template <class S, bool keys, class R>
__device__ inline void produce_codes(const TileParams& p, const Item& item, R& ring, int role,
                                     std::uint32_t waiting) {
  using Unit = CodeUnit<S, keys>;
  constexpr int ahead = S::units_ahead;
  const CodeUnits<S, keys> units(p, item, role);
#pragma unroll 1
  for (int i = 0; i < ahead; ++i) {
    if (i < units.count) Unit{waiting + i * Unit::bytes}.load(units.rows_of(i, units.page_of(i)));
    copies_commit();
  }
  int page = units.page_of(ahead);
  int slot = 0;
#pragma unroll 1
  for (int unit = 0; unit < units.count; ++unit) {
    const Unit own{waiting + slot * Unit::bytes};
    units.begin(unit, ring);
    copies_wait<ahead - 1>();
    units.store(own, unit, ring);
    const int next_page = units.page_of(unit + ahead + 1);
    if (unit + ahead < units.count) own.load(units.rows_of(unit + ahead, page));
    copies_commit();
    page = next_page;
    slot = slot + 1 < ahead ? slot + 1 : 0;
    units.end(unit, ring);
  }
  copies_wait<0>();
}

}  // namespace motley::kernels::cuda::tiles
