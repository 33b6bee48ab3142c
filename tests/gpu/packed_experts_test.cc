#include <cstring>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "moe/conformance/runner.h"
#include "moe/cuda/cuda_backends.h"
#include "tensor/device/cpu_device.h"

namespace motley::moe {
namespace {

// Decoded numbers would leave the range of bf16.
TEST(PackedExperts, RefuseLargeScalesOfMxfp4ByName) {
  tensor::Device& device = conformance::device();
  tensor::CpuDevice host({.threads = 1});
  const auto weight = [&](int scale) {
    tensor::Buffer codes = host.allocate(32 * 16).value();
    tensor::Buffer scales = host.allocate(32).value();
    std::memset(codes.data(), 0x22, 32 * 16);
    std::memset(scales.data(), scale, 32);
    return quant::Weight::own({.element = DType::f4,
                               .bits = 4,
                               .scales = quant::Format::Scales::group,
                               .block_columns = 32,
                               .scale_type = DType::f8_e8m0},
                              {32, 32}, std::move(codes), std::move(scales));
  };
  for (const int scale : {192, 193}) {
    ExpertWeights weights{.experts = 1, .hidden = 32, .intermediate = 32};
    weights.gate.push_back(weight(127));
    weights.up.push_back(weight(scale));
    weights.down.push_back(weight(127));
    const auto uploader = quant::Uploader::create(device).value();
    const auto prepared = cuda_backends().front()->prepare(weights, uploader.get());
    EXPECT_EQ(prepared.ok(), scale == 192);
    if (prepared.ok()) continue;
    EXPECT_THAT(prepared.error().message(), testing::HasSubstr("2^65"));
  }
}

}  // namespace
}  // namespace motley::moe
