// "awq": what AutoAWQ, llm-awq's converters and GPTQModel write.

#include <algorithm>

#include "quant/methods/methods.h"

namespace motley::quant {
namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

// A setting that has two names.
Result<std::int64_t> read_integer(const Settings& settings, std::string_view key,
                                  std::string_view older, std::int64_t otherwise) {
  MOTLEY_TRY(const std::int64_t old, settings.integer(older, otherwise));
  return settings.integer(key, old);
}

// The order of the words: AutoAWQ calls it a version, GPTQModel a format. llm-awq has one of its
// own.
Result<void> check_order(const Settings& settings) {
  const auto refuse_order = [](std::string_view name, std::string_view key) {
    return Error(ErrorCode::unsupported, cat("weights in the order ", quote(name)),
                 cat("quantization_config, ", key), "convert the checkpoint to version gemm");
  };
  for (const std::string_view key : {"version", "checkpoint_format", "format"}) {
    MOTLEY_TRY(const std::string name, settings.text(key, "gemm"));
    if (lower(name) != "gemm") return refuse_order(name, key);
  }
  MOTLEY_TRY(const std::string writer, settings.text("backend", "autoawq"));
  if (lower(writer) == "llm-awq") return refuse_order(writer, "backend");
  return {};
}

// GPTQModel's settings by module. One that leaves modules plain says what their tensors do.
Result<void> refuse_overrides(const Settings& settings) {
  const json::Value* const value = settings.find("dynamic");
  if (value == nullptr) return {};
  MOTLEY_TRY(const json::Object* dynamic, value->as_object("dynamic"));
  for (const json::Member& member : dynamic->members()) {
    if (!member.key.starts_with("-:"))
      return refuse("modules with settings of their own", cat("dynamic.", printable(member.key)));
  }
  return {};
}

}  // namespace

Result<Config> read_awq(const json::Object& quantization) {
  const Settings settings{quantization};
  MOTLEY_TRY_VOID(check_order(settings));
  MOTLEY_TRY_VOID(refuse_overrides(settings));
  MOTLEY_TRY(const std::int64_t bits, read_integer(settings, "bits", "w_bit", 4));
  if (bits != 4) return refuse(cat("weights of ", bits, " bits"), "bits");
  MOTLEY_TRY(const std::int64_t group, read_integer(settings, "group_size", "q_group_size", 128));
  if (group != -1 && group < 1)
    return bad_setting(cat("groups of ", group), "group_size",
                       "give the inputs that share a scale, or -1 for all of a row");
  MOTLEY_TRY(const bool zero_points, settings.flag("zero_point", true));

  using Scales = Format::Scales;
  const Format format{.element = DType::i8,
                      .bits = 4,
                      .scales = group > 0 ? Scales::group : Scales::channel,
                      .block_columns = group > 0 ? group : 0,
                      .scale_type = DType::f16,
                      .zero_points = zero_points};
  // modules_to_not_convert says too much: "gate" stands for a router and is a part of "gate_proj".
  // Which modules stay plain is a matter of their tensors.
  std::vector<Config::Rule> rules;
  rules.push_back(
      {ModuleList::all(), Scheme{.layout = Layout::awq, .format = format, .stored_bits = 4}});
  return Config("awq", std::move(rules));
}

}  // namespace motley::quant
