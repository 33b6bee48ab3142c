#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "text/tokenizer_config.h"

namespace motley::cli {

// Trainers put the base's tokenizer and chat template next to an adapter's weights. The base's own
// are used, so a copy that differs is worth a warning. Thread-safe.
class AdapterText {
 public:
  // `base`: the model's folder; `served`: its templates and special tokens, as they are used.
  // Adapters in `with_templates` are served with templates of their own (--chat-template).
  AdapterText(std::filesystem::path base, text::TokenizerConfig served,
              std::set<std::string> with_templates);

  // The files of an adapter's folder that say something else than the base's, with what differs:
  // "tokenizer.json", "the chat template". A file that can't be read is left out.
  std::vector<std::string> differences(const std::string& adapter,
                                       const std::filesystem::path& folder);

  // Logs them as adapter.files_ignored, if there are any.
  void warn(const std::string& adapter, const std::filesystem::path& folder);

 private:
  bool tokenizer_differs(const std::filesystem::path& folder);

  const std::filesystem::path base_;
  const text::TokenizerConfig served_;
  const std::set<std::string> with_templates_;
  std::mutex lock_;
  std::optional<json::Value> base_tokenizer_;  // parsed when it is first needed
  // By the contents of files: adapters of one trainer have the same one.
  std::map<std::size_t, bool> known_;
};

// Whether two JSON values are equal; the order of keys does not matter.
bool is_same_json(const json::Value& one, const json::Value& other);

}  // namespace motley::cli
