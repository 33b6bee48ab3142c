// A tokenizer.json up to the first NUL byte, and a text: what is read encodes the text to ids that
// it has, streams what it decodes, and makes nothing special of untrusted text; what is refused is
// refused with a message of one line.

#include "text/tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/cat.h"
#include "base/check.h"
#include "base/utf8.h"
#include "text/stream_decoder.h"

namespace {

using motley::text::MarkedText;
using motley::text::StreamDecoder;
using motley::text::Tokenizer;

void check_message(const motley::Error& error) {
  const std::string message = error.message();
  MOTLEY_CHECK(!message.empty() && message == motley::printable(message), "one printable line");
}

void check_decoding(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  for (const bool skip : {false, true}) {
    StreamDecoder stream(tokenizer, skip);
    std::string streamed;
    for (const std::int32_t id : ids) {
      const std::string piece = stream.push(id);
      MOTLEY_CHECK(motley::utf8::valid(piece), "whole characters");
      streamed += piece;
    }
    streamed += stream.finish();
    MOTLEY_CHECK(streamed == tokenizer.decode(ids, skip), "a stream gives what decode() gives");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), size);
  const auto tokenizer = Tokenizer::parse(input.substr(0, end), "tokenizer.json");
  if (!tokenizer.ok()) {
    check_message(tokenizer.error());
    return 0;
  }
  const std::string_view text = input.substr(std::min(end + 1, size));
  const auto ids = tokenizer->encode(text);
  if (ids.ok()) {
    for (const std::int32_t id : *ids) MOTLEY_CHECK(id >= 0 && id < tokenizer->size(), "an id");
    check_decoding(*tokenizer, *ids);
  } else {
    check_message(ids.error());
  }
  MarkedText untrusted;
  untrusted.append(text.substr(0, text.size() / 3), false);
  untrusted.append(text.substr(text.size() / 3), true);
  if (const auto guarded = tokenizer->encode(untrusted); !guarded.ok())
    check_message(guarded.error());
  MarkedText all;
  all.append(text, true);
  const auto guarded = tokenizer->encode(all, {.add_special_tokens = false});
  if (guarded.ok())
    for (const std::int32_t id : *guarded)
      MOTLEY_CHECK(!tokenizer->is_special(id), "untrusted text gives no special token");
  return 0;
}
