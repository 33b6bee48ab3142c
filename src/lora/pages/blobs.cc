#include "lora/pages/blobs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/number_types.h"
#include "base/system/parallel.h"
#include "lora/pages/packed_layout.h"
#include "tensor/convert.h"

namespace motley::lora {
namespace {

using Blob = Placement::Blob;
using Role = Placement::Role;

float row_scale(std::span<const float> row) {
  float largest = 0;
  for (const float number : row) largest = std::max(largest, std::abs(number));
  if (largest == 0.0F) return 1;
  constexpr float max_e4m3 = 448;
  // At least 2^-126, which is a normal number.
  return std::max(f8_e8m0::from_rounded_up(largest / max_e4m3).to_float(), 0x1p-126F);
}

// Writes `count` numbers of a matrix, from the one at `first` on, in the pool's type, divided by
// the row's scale.
void write_numbers(const Matrix& from, std::int64_t first, std::size_t count, DType dtype,
                   float scale, std::byte* to) {
  const std::size_t element = static_cast<std::size_t>(bits(dtype)) / 8;
  if (from.stored != nullptr && from.dtype == dtype && scale == 1.0F) {
    std::memcpy(to, from.stored + static_cast<std::size_t>(first) * element, count * element);
    return;
  }
  std::array<float, 256> numbers{};
  for (std::size_t at = 0; at < count; at += numbers.size()) {
    const auto chunk = std::span(numbers).first(std::min(numbers.size(), count - at));
    from.read(first + static_cast<std::int64_t>(at), chunk);
    if (scale != 1.0F) {
      for (float& number : chunk) number /= scale;
    }
    tensor::narrow(dtype, chunk, to + at * element);
  }
}

class BlobWriter {
 public:
  BlobWriter(const Adapter& adapter, PageFormat format, PageWriter& writer)
      : adapter_(adapter), format_(format), writer_(writer) {}

  Result<void> write(const Blob& blob, std::byte* to) {
    switch (blob.role) {
      case Role::rows:
      case Role::table:
      case Role::vector:
        return write_rows(blob, to);
      case Role::columns:
        return write_columns(blob, to);
      case Role::packed_a:
        return write_packed_a(blob, to);
      case Role::packed_b:
      case Role::packed_gate_up:
        return write_packed_b(blob, to);
    }
    MOTLEY_CHECK(false, "a blob with a role");
  }

 private:
  const Matrix* matrix(std::int32_t index) const {
    return index < 0 ? nullptr : &adapter_.matrices[static_cast<std::size_t>(index)];
  }
  std::vector<float> scales_of(const Matrix* of) const {
    return of == nullptr || !format_.scaled() ? std::vector<float>() : scales_of_rows(*of);
  }
  static float scale_at(const std::vector<float>& scales, std::int64_t row) {
    return scales.empty() ? 1 : scales[static_cast<std::size_t>(row)];
  }

  // The padding behind the last row is zero.
  Result<void> write_rows(const Blob& blob, std::byte* to) {
    const Matrix& from = *matrix(blob.first);
    const bool factor = blob.role == Role::rows;
    const DType dtype = factor                      ? format_.dtype
                        : blob.role == Role::vector ? DType::f32
                                                    : format_.table_dtype();
    const std::size_t element = static_cast<std::size_t>(bits(dtype)) / 8;
    const std::vector<float> scales = factor ? scales_of(&from) : std::vector<float>();
    const auto columns = static_cast<std::size_t>(from.columns);
    const std::size_t max_count = PageWriter::max_bytes / element;
    const auto numbers = static_cast<std::size_t>(from.size());
    std::size_t at = 0;
    while (at < numbers) {
      // Stays within a row if rows have scales.
      const std::size_t end = scales.empty() ? numbers : (at / columns + 1) * columns;
      const std::size_t count = std::min(max_count, end - at);
      MOTLEY_TRY(std::byte* const place, writer_.next(to + at * element, count * element));
      const float scale =
          scales.empty() ? 1.0F : scale_at(scales, static_cast<std::int64_t>(at / columns));
      write_numbers(from, static_cast<std::int64_t>(at), count, dtype, scale, place);
      at += count;
    }
    MOTLEY_TRY_VOID(write_zeros(to + numbers * element, to + blob.numbers));
    if (blob.bytes == blob.numbers) return {};
    return write_scales(scales, blob, to);
  }

  Result<void> write_columns(const Blob& blob, std::byte* to) {
    const Matrix& from = *matrix(blob.first);
    const std::vector<float> scales = scales_of(&from);
    const std::size_t element = static_cast<std::size_t>(bits(format_.dtype)) / 8;
    const auto columns = static_cast<std::size_t>(from.columns);
    const std::size_t pitch =
        element * static_cast<std::size_t>(
                      padded_rank(static_cast<std::int32_t>(from.columns), format_.dtype));
    const auto together = static_cast<std::int64_t>(PageWriter::max_bytes / pitch);
    for (std::int64_t first = 0; first < from.rows; first += together) {
      const std::int64_t rows = std::min(together, from.rows - first);
      const std::size_t bytes = static_cast<std::size_t>(rows) * pitch;
      MOTLEY_TRY(std::byte * place,
                 writer_.next(to + static_cast<std::size_t>(first) * pitch, bytes));
      std::memset(place, 0, bytes);
      for (std::int64_t row = first; row < first + rows; ++row, place += pitch)
        write_numbers(from, row * from.columns, columns, format_.dtype, scale_at(scales, row),
                      place);
    }
    if (!format_.scaled()) return {};
    MOTLEY_TRY_VOID(
        write_zeros(to + static_cast<std::size_t>(from.rows) * pitch, to + blob.numbers));
    return write_scales(scales, blob, to);
  }

  Result<void> write_packed_a(const Blob& blob, std::byte* to) {
    const Matrix* const first = matrix(blob.first);
    const Matrix* const second = matrix(blob.second);
    const std::vector<float> first_scales = scales_of(first);
    const std::vector<float> second_scales = scales_of(second);
    const std::int64_t in = first != nullptr ? first->columns : second->columns;
    const std::size_t element = static_cast<std::size_t>(bits(format_.dtype)) / 8;
    const std::size_t pitch = 64 * element;
    std::vector<float> scales(static_cast<std::size_t>(blob.columns), 1.0F);
    for (std::int64_t block = 0; block < blob.columns; block += packed_block) {
      const std::int64_t rows = std::min(packed_block, blob.columns - block);
      for (std::int64_t k = 0; k < packed_depth(in); k += 64) {
        const std::size_t bytes = static_cast<std::size_t>(rows) * pitch;
        MOTLEY_TRY(std::byte* const tile, writer_.next(to, bytes));
        to += bytes;
        std::memset(tile, 0, bytes);
        const auto count = static_cast<std::size_t>(std::clamp<std::int64_t>(in - k, 0, 64));
        for (std::int64_t row = 0; row < rows; ++row) {
          const std::int64_t column = block + row;
          const bool is_second = column >= blob.second_column;
          const Matrix* const from = is_second ? second : first;
          const std::int64_t rank = is_second ? column - blob.second_column : column;
          if (from == nullptr || rank >= from->rows) continue;
          const float scale = scale_at(is_second ? second_scales : first_scales, rank);
          scales[static_cast<std::size_t>(column)] = scale;
          std::array<std::byte, max_pitch> numbers{};
          write_numbers(*from, rank * from->columns + k, count, format_.dtype, scale,
                        numbers.data());
          write_tile_row(std::span(numbers).first(pitch), static_cast<std::size_t>(row), tile);
        }
      }
    }
    return format_.scaled() ? write_floats(scales, to) : Result<void>();
  }

  Result<void> write_packed_b(const Blob& blob, std::byte* to) {
    const Matrix* const first = matrix(blob.first);
    const Matrix* const second = matrix(blob.second);
    const std::vector<float> first_scales = scales_of(first);
    const std::vector<float> second_scales = scales_of(second);
    const bool alternating = blob.role == Role::packed_gate_up;
    const std::int64_t out = first != nullptr ? first->rows : second->rows;
    const std::int64_t rows = packed_rows(alternating ? 2 * out : out);
    const std::size_t element = static_cast<std::size_t>(bits(format_.dtype)) / 8;
    const std::size_t pitch = 16 * element;
    std::vector<float> scales(static_cast<std::size_t>(rows), 1.0F);
    for (std::int64_t block = 0; block < rows; block += 64) {
      for (std::int64_t column = 0; column < blob.columns; column += 16) {
        MOTLEY_TRY(std::byte* const tile, writer_.next(to, 64 * pitch));
        to += 64 * pitch;
        std::memset(tile, 0, 64 * pitch);
        for (std::int64_t row = 0; row < 64; ++row) {
          AlternatingRow source{false, block + row};
          if (alternating) source = alternating_row(block + row);
          const Matrix* const from = source.up ? second : first;
          if (from == nullptr || source.row >= out) continue;
          const float scale = scale_at(source.up ? second_scales : first_scales, source.row);
          scales[static_cast<std::size_t>(block + row)] = scale;
          // The ranks of the factor in this tile's 16 columns.
          const std::int64_t begin = column - (source.up ? blob.second_column : 0);
          const std::int64_t skipped = std::clamp<std::int64_t>(-begin, 0, 16);
          const std::int64_t count =
              std::clamp<std::int64_t>(from->columns - begin, skipped, 16) - skipped;
          if (count == 0) continue;
          std::array<std::byte, max_pitch> numbers{};
          write_numbers(*from, source.row * from->columns + begin + skipped,
                        static_cast<std::size_t>(count), format_.dtype, scale,
                        numbers.data() + static_cast<std::size_t>(skipped) * element);
          write_tile_row(std::span(numbers).first(pitch), static_cast<std::size_t>(row), tile);
        }
      }
    }
    return format_.scaled() ? write_floats(scales, to) : Result<void>();
  }

  static constexpr std::size_t max_pitch = 128;

  // Writes a row of a tile, chunk by chunk.
  static void write_tile_row(std::span<const std::byte> bytes, std::size_t row, std::byte* tile) {
    for (std::size_t at = 0; at < bytes.size(); at += 16)
      std::memcpy(tile + swizzled(row, at, bytes.size()), bytes.data() + at, 16);
  }

  Result<void> write_zeros(std::byte* begin, const std::byte* end) {
    while (begin < end) {
      const auto count = std::min(PageWriter::max_bytes, static_cast<std::size_t>(end - begin));
      MOTLEY_TRY(std::byte* const place, writer_.next(begin, count));
      std::memset(place, 0, count);
      begin += count;
    }
    return {};
  }

  Result<void> write_scales(std::vector<float> scales, const Blob& blob, std::byte* to) {
    scales.resize((blob.bytes - blob.numbers) / sizeof(float), 1.0F);
    return write_floats(scales, to + blob.numbers);
  }

  Result<void> write_floats(std::span<const float> numbers, std::byte* to) {
    constexpr std::size_t max_count = PageWriter::max_bytes / sizeof(float);
    for (std::size_t at = 0; at < numbers.size(); at += max_count) {
      const auto part = numbers.subspan(at, std::min(max_count, numbers.size() - at));
      MOTLEY_TRY(std::byte* const place, writer_.next(to + at * sizeof(float), part.size_bytes()));
      std::memcpy(place, part.data(), part.size_bytes());
    }
    return {};
  }

  const Adapter& adapter_;
  PageFormat format_;
  PageWriter& writer_;
};

// Blobs in the host's memory do not depend on each other.
void write_at_once(const Adapter& adapter, const Placement& placement,
                   std::span<std::byte* const> bases) {
  std::uint64_t bytes = 0;
  for (const Blob& blob : placement.blobs) bytes += blob.bytes;
  for_each_index(placement.blobs.size(), bytes, [&](std::size_t at) {
    const Blob& blob = placement.blobs[at];
    PageWriter writer;
    const Result<void> written =
        BlobWriter(adapter, placement.format, writer).write(blob, bases[blob.run] + blob.offset);
    MOTLEY_CHECK(written.ok(), "the host's memory takes every write");
  });
}

}  // namespace

std::vector<float> scales_of_rows(const Matrix& matrix) {
  std::vector<float> scales(static_cast<std::size_t>(matrix.rows));
  std::vector<float> numbers(static_cast<std::size_t>(matrix.columns));
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    matrix.read(row * matrix.columns, numbers);
    scales[static_cast<std::size_t>(row)] = row_scale(numbers);
  }
  return scales;
}

Result<void> write_blobs(const Adapter& adapter, const Placement& placement,
                         std::span<std::byte* const> bases, PageWriter& writer) {
  if (writer.is_direct()) {
    write_at_once(adapter, placement, bases);
    return {};
  }
  // In the order of addresses, so that adjacent blobs are copied together.
  std::vector<std::size_t> order(placement.blobs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t at) {
    const Blob& blob = placement.blobs[at];
    return std::pair(bases[blob.run], blob.offset);
  });
  BlobWriter blobs(adapter, placement.format, writer);
  for (const std::size_t at : order) {
    const Blob& blob = placement.blobs[at];
    MOTLEY_TRY_VOID(blobs.write(blob, bases[blob.run] + blob.offset));
  }
  return {};
}

}  // namespace motley::lora
