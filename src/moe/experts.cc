#include "moe/experts.h"

#include <cstddef>
#include <span>

#include "base/cat.h"

namespace motley::moe {
namespace {

struct Part {
  std::string_view name;
  const std::vector<quant::Weight>& weights;
  std::int64_t out;
  std::int64_t in;
};

// What experts must share.
quant::Format without_details(quant::Format format) {
  format.zero_points = false;
  format.input_order = false;
  return format;
}

Result<void> validate(const Part& part, int experts) {
  if (part.weights.size() != static_cast<std::size_t>(experts)) {
    return Error(ErrorCode::bad_file,
                 cat(part.weights.size(), " experts have weights, and not ", experts),
                 std::string(part.name));
  }
  for (std::size_t e = 0; e < part.weights.size(); ++e) {
    const quant::Weight& weight = part.weights[e];
    const auto where = [&] { return cat("expert ", e, ", ", part.name); };
    if (weight.out() != part.out || weight.in() != part.in) {
      return Error(ErrorCode::bad_file,
                   cat("a weight of [", weight.out(), ", ", weight.in(), "] where [", part.out,
                       ", ", part.in, "] belongs"),
                   where());
    }
    if (weight.columns() != part.weights[0].columns() ||
        without_details(weight.format()) != without_details(part.weights[0].format())) {
      return Error(ErrorCode::unsupported,
                   cat("a weight in ", to_string(weight.format()), " beside others in ",
                       to_string(part.weights[0].format())),
                   where(), "quantise the experts of a layer alike");
    }
  }
  return {};
}

}  // namespace

std::string_view name(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::silu_mul:
      return "silu_mul";
    case ActivationKind::clamped_swiglu:
      return "clamped_swiglu";
  }
  return "";
}

quant::Format common_format(std::span<const quant::Weight> weights) {
  quant::Format format = weights[0].format();
  for (const quant::Weight& weight : weights) {
    format.zero_points = format.zero_points || weight.format().zero_points;
    format.input_order = format.input_order || weight.format().input_order;
  }
  return format;
}

Result<void> validate(const ExpertWeights& weights) {
  if (weights.experts < 1 || weights.hidden < 1 || weights.intermediate < 1) {
    return Error(ErrorCode::bad_file,
                 cat(weights.experts, " experts of hidden size ", weights.hidden,
                     " and intermediate size ", weights.intermediate));
  }
  const std::int64_t hidden = weights.hidden;
  const std::int64_t intermediate = weights.intermediate;
  MOTLEY_TRY_VOID(validate({"gate", weights.gate, intermediate, hidden}, weights.experts));
  MOTLEY_TRY_VOID(validate({"up", weights.up, intermediate, hidden}, weights.experts));
  MOTLEY_TRY_VOID(validate({"down", weights.down, hidden, intermediate}, weights.experts));
  if (without_details(weights.gate[0].format()) != without_details(weights.up[0].format())) {
    return Error(ErrorCode::unsupported,
                 cat("gate in ", to_string(weights.gate[0].format()), " and up in ",
                     to_string(weights.up[0].format())),
                 "experts", "quantise both alike");
  }
  const auto fits = [&](const std::vector<float>& bias, std::int64_t length) {
    return bias.empty() || bias.size() == static_cast<std::size_t>(weights.experts * length);
  };
  if (!fits(weights.gate_bias, intermediate) || !fits(weights.up_bias, intermediate) ||
      !fits(weights.down_bias, hidden) || weights.gate_bias.size() != weights.up_bias.size()) {
    return Error(ErrorCode::bad_file,
                 cat("biases of ", weights.gate_bias.size(), ", ", weights.up_bias.size(), " and ",
                     weights.down_bias.size(), " numbers for ", weights.experts,
                     " experts of hidden size ", hidden, " and intermediate size ", intermediate),
                 "gate, up and down");
  }
  return {};
}

}  // namespace motley::moe
