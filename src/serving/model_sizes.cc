#include "serving/model_sizes.h"

#include "runner/kv_memory.h"
#include "runner/state_memory.h"

namespace motley::serving {

ModelSizes sizes_of(const model::Model& model) {
  ModelSizes sizes{
      .max_positions = model.config().max_positions,
      .page_tokens = runner::KvMemory::page_tokens,
      .page_bytes = runner::KvMemory::page_bytes(model.token_caches(), model.kv_type()),
      .slot_bytes = runner::StateMemory::slot_bytes(model.state_shapes()),
      .snapshot_bytes = runner::StateMemory::snapshot_bytes(model.state_shapes())};
  if (model.checkpoint() != nullptr)
    sizes.file_bytes = static_cast<std::int64_t>(model.checkpoint()->file_bytes());
  return sizes;
}

}  // namespace motley::serving
