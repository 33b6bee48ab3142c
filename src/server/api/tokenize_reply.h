#pragma once

#include <cstdint>
#include <string>

#include "server/api/fields/token_lists.h"
#include "server/api/generation_plan.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace motley::server {

// {"count", "max_model_len", "tokens", "token_strs"} in pieces; empty after the last one.
class TokenizeReply {
 public:
  // The tokenizer must outlive the reply.
  TokenizeReply(TokenizePlan plan, std::int64_t max_sequence_tokens,
                const text::Tokenizer& tokenizer);
  std::string next_piece();

 private:
  TokenizePlan plan_;
  std::int64_t max_sequence_tokens_;
  const text::Tokenizer& tokenizer_;
  int list_ = 0;
  ListPlace place_;
};

// {"prompt"} in pieces; empty after the last one.
class DetokenizeReply {
 public:
  // The tokenizer must outlive the reply.
  DetokenizeReply(TokenizePlan plan, const text::Tokenizer& tokenizer);
  std::string next_piece();

 private:
  TokenizePlan plan_;
  text::StreamDecoder decoder_;
  std::size_t next_ = 0;
  bool begun_ = false;
  bool ended_ = false;
};

}  // namespace motley::server
