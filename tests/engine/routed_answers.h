#pragma once

#include <string>
#include <vector>

#include "engine/golden_engine.h"

// The experts of tokens, as Hugging Face's routers chose them (tools/make_routed_goldens.py), on
// every device.
namespace motley::engine_tests {

// The models of the file.
std::vector<std::string> models_with_routed_experts();

// All recorded answers in one batch, prompts in pieces: their tokens have the recorded experts.
void expect_recorded_experts(GoldenEngine& world, const std::string& model);

// A choice's, from its request's first token with experts on: those of the prompt, then its own.
std::vector<std::uint8_t> routed_of(const Answer& answer, std::size_t choice);

}  // namespace motley::engine_tests
