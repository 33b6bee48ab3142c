#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "text/tokenizer/steps/added_tokens.h"
#include "text/tokenizer/steps/bpe.h"
#include "text/tokenizer/steps/decoder.h"
#include "text/tokenizer/steps/normalizer.h"
#include "text/tokenizer/steps/post_processor.h"
#include "text/tokenizer/steps/pre_tokenizer.h"

namespace motley::text {

// The buffers of one encode() call; reused, because their cache of words helps later calls.
struct EncodeWorkspace {
  Words words;
  Bpe::Workspace model;
  std::vector<AddedTokens::Stretch> raw;
  std::vector<AddedTokens::Stretch> normalized;
};

// Unused workspaces: as many as there were concurrent calls, up to a limit.
class WorkspacePool {
 public:
  std::unique_ptr<EncodeWorkspace> take();
  void give_back(std::unique_ptr<EncodeWorkspace> workspace);

 private:
  static constexpr std::size_t max_kept = 64;

  std::mutex mutex_;
  std::vector<std::unique_ptr<EncodeWorkspace>> idle_;
};

struct TokenizerParts {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe model;
  AddedTokens added;
  PostProcessor post_processor;
  Decoder decoder;
  // By id.
  std::vector<std::int32_t> added_by_id;  // index among the added tokens, -1 for others
  std::vector<bool> special;
  // Whether the model's vocabulary has a special token, so that merges might produce it.
  bool model_has_special = false;
  bool words_are_tokens = false;  // every word has at least one token, and no byte is dropped
  mutable WorkspacePool workspaces;

  const AddedToken* added_token(std::int32_t id) const;

  // The token text that decoding begins with; nothing for unknown or skipped ids.
  std::optional<std::string_view> token_to_decode(std::int32_t id, bool skip_special) const;
};

}  // namespace motley::text
