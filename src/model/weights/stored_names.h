#pragma once

#include <string>
#include <string_view>

namespace motley::tensor {
class Checkpoint;
}

namespace motley::model {

// How a checkpoint's tensors are called where a wrapper surrounds the text model. Loaders say
// "model.layers.0. ..." and "lm_head.weight"; wrappers' files have "model.language_model.layers.0.
// ..." or "language_model.model.layers.0. ...".
class StoredNames {
 public:
  // Names as loaders say them.
  StoredNames() = default;
  // As this checkpoint has them.
  explicit StoredNames(const tensor::Checkpoint& checkpoint);

  std::string stored(std::string_view name) const;
  // As loaders say it, whichever way it is called; of tensors outside the text model as it is.
  static std::string plain(std::string_view name);

 private:
  std::string_view body_ = "model.";
  std::string_view head_;  // before "lm_head."
};

}  // namespace motley::model
