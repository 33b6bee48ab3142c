#include "server/api/fields/routed_fields.h"

#include <limits>
#include <optional>

#include "base/cat.h"
#include "server/api/fields/npy_text.h"

namespace motley::server {
namespace {

constexpr std::string_view whether = "return_routed_experts";
constexpr std::string_view from_where = "routed_experts_prompt_start";

}  // namespace

Result<void> read_routed_fields(Fields& fields, const engine::RoutedExpertsSizes& sizes,
                                RoutedInStreams streams, GenerationFields& into) {
  MOTLEY_TRY(const std::optional<bool> asked, fields.boolean(whether));
  MOTLEY_TRY(const auto start,
             fields.integer(from_where, 0, std::numeric_limits<std::int32_t>::max()));
  const bool leaves_out = start.value_or(0) > 0;
  const bool in_stream = into.stream && streams == RoutedInStreams::no;
  if ((asked.value_or(false) || leaves_out) && !sizes.kept())
    return Error(ErrorCode::unsupported, "this server does not keep the experts of tokens",
                 fields.place(asked.value_or(false) ? whether : from_where),
                 "start it with --enable-return-routed-experts, or leave the field out");
  if (asked.value_or(false) && in_stream)
    return Error(ErrorCode::unsupported, "a stream has no experts of its tokens",
                 fields.place(whether), "leave out stream");
  if (leaves_out && in_stream) fields.leave(from_where);
  if (!asked.value_or(sizes.kept() && !in_stream)) return {};
  into.routed_experts = sizes;
  into.routed_experts_from = start.value_or(0);
  return {};
}

bool write_routed(std::string& piece, ListPlace& place, const serving::Transcript& transcript,
                  std::size_t index, const engine::RoutedExpertsSizes& sizes) {
  const serving::RoutedTokens& routed = transcript.routed();
  const std::size_t bytes = routed.bytes(index);
  const NpyArray array{
      .type = sizes.bytes_each() == 1 ? "|u1" : "<u2",
      .shape = cat(bytes / sizes.bytes_of_token(), ", ", sizes.layers, ", ", sizes.top_k),
      .bytes = bytes};
  return write_npy(piece, place, array, [&](std::string& text, std::size_t begin, std::size_t end) {
    routed.append_to(text, index, begin, end);
  });
}

}  // namespace motley::server
