#include "text/stream_decoder.h"

#include <utility>

#include "text/tokenizer/parts.h"

namespace motley::text {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : parts_(tokenizer.parts_.get()),
      skip_special_(skip_special),
      output_(std::make_unique<std::string>()),
      stages_(parts_->decoder.start(*output_)) {}

StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;
StreamDecoder::~StreamDecoder() = default;

void StreamDecoder::take(std::int32_t id) {
  const auto token = parts_->token_to_decode(id, skip_special_);
  if (!token) return;
  stages_.front()->write(*token);
  stages_.front()->end_token();
}

std::string StreamDecoder::push(std::int32_t id) {
  take(id);
  return std::exchange(*output_, {});
}

std::string StreamDecoder::finish() {
  stages_.front()->finish();
  return std::exchange(*output_, {});
}

}  // namespace motley::text
