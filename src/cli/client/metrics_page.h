#pragma once

#include <optional>
#include <string_view>

namespace motley::cli {

// The value of a metric without labels on a page of Prometheus text, or its sum over replicas.
std::optional<double> metric(std::string_view page, std::string_view name);

// The value of a label of a metric's first sample, or "".
std::string_view metric_label(std::string_view page, std::string_view name, std::string_view label);

}  // namespace motley::cli
