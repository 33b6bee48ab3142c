#pragma once

#include <map>
#include <memory>
#include <vector>

#include "lora/site.h"
#include "quant/config.h"

namespace motley::model {

class Model;

// The model's sites and numbers for adapters. The model must outlive it and not move.
std::unique_ptr<lora::BaseView> make_base_view(const Model& model,
                                               const quant::Config& quantization);

}  // namespace motley::model
