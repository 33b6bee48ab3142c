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

// What one call of encode() writes on; kept from call to call, because its cache warms up.
struct EncodeWorkspace {
  Words words;
  Bpe::Workspace model;
  std::vector<AddedTokens::Stretch> raw;
  std::vector<AddedTokens::Stretch> normalized;
};

// Workspaces that no call uses at the moment: as many as there were calls at once, up to a limit.
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
  std::vector<std::int32_t> added_by_id;  // place among the added tokens, -1 for others
  std::vector<bool> special;
  // Whether the model knows a special token, so that it might build one.
  bool model_has_special = false;
  bool words_are_tokens = false;  // every word has one at least, and no byte is left out
  mutable WorkspacePool workspaces;

  const AddedToken* added_token(std::int32_t id) const;

  // What decoding begins with; nothing for ids that are not there or are left out.
  std::optional<std::string_view> token_to_decode(std::int32_t id, bool skip_special) const;
};

}  // namespace motley::text
