// docs/guide/metrics.md has every metric of motley that GET /metrics shows, and no other.

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/files.h"
#include "server/metrics/holder_counts.h"
#include "server/metrics/metrics.h"
#include "server/metrics/push_counts.h"

namespace motley::server {
namespace {

struct Family {
  std::string name;
  std::string kind;
  std::vector<std::string> labels;  // names; without `le`, which every histogram has
  std::string meaning;

  bool is_on(const std::vector<Family>& list) const {
    return std::ranges::find(list, name, &Family::name) != list.end();
  }
};

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> words_of(std::string_view line, std::string_view between) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at <= line.size();) {
    const std::size_t end = std::min(line.find(between, at), line.size());
    words.emplace_back(line.substr(at, end - at));
    at = end + between.size();
  }
  return words;
}

// Names of labels in a sample: `name{a="x",b="y"} 1`. No value holds a quote.
void add_labels(std::string_view sample, std::vector<std::string>& labels) {
  const std::string_view inside = sample.substr(0, sample.rfind('}'));
  for (std::size_t at = inside.find('{'); at < inside.size();) {
    const std::size_t end = inside.find("=\"", at);
    if (end == inside.npos) return;
    std::string name(inside.substr(at + 1, end - at - 1));
    if (name != "le" && std::ranges::find(labels, name) == labels.end())
      labels.push_back(std::move(name));
    at = inside.find('"', end + 2) + 1;
  }
}

// The families of motley in Prometheus' text.
std::vector<Family> families_of(const std::string& page) {
  std::vector<Family> families;
  bool is_ours = false;
  for (const std::string& line : lines_of(page)) {
    constexpr std::string_view help = "# HELP ";
    constexpr std::string_view type = "# TYPE ";
    if (line.starts_with(help)) {
      const std::size_t end = line.find(' ', help.size());
      is_ours = line.starts_with(cat(help, "motley_"));
      if (is_ours)
        families.push_back(
            {.name = line.substr(help.size(), end - help.size()), .meaning = line.substr(end + 1)});
    } else if (!is_ours) {
      continue;
    } else if (line.starts_with(type)) {
      families.back().kind = line.substr(line.rfind(' ') + 1);
    } else {
      add_labels(line, families.back().labels);
    }
  }
  return families;
}

// All that a server can show. What engines count has the label `replica` with --dp; the guide says
// so once.
std::vector<Family> shown() {
  engine::Stats stats;
  stats.adapters = {{.name = "poet", .pages = 1}};
  stats.ranks.resize(2);
  HttpCounts http;
  http.count("/v1/models", 200);
  const std::string page =
      cat(metrics_page(stats, http, {.model = "base"}), http_metrics({}),
          holder_metrics({{"team", {.requests = 1}}}), push_metrics(PushCounts(), {}),
          pause_metrics({}), process_metrics(nullptr));
  stats.replicas.resize(2);
  std::vector<Family> all = families_of(metrics_page(stats, http, {.model = "base"}));
  const std::vector<Family> of_one = families_of(page);
  std::erase_if(all, [&](const Family& each) { return each.is_on(of_one); });
  all.insert(all.end(), of_one.begin(), of_one.end());
  return all;
}

// The rows of the guide's tables: | `name` | kind | `label`, `label` | meaning |
std::vector<Family> described() {
  std::vector<Family> families;
  for (const std::string& line : lines_of(read_text(MOTLEY_METRICS_GUIDE, 1 << 20).value())) {
    if (!line.starts_with("| `motley_") || line.starts_with("| `motley_*")) continue;
    std::vector<std::string> cells;
    for (const std::string& cell : words_of(line, "|")) {
      const std::size_t begin = std::min(cell.find_first_not_of(' '), cell.size());
      cells.push_back(cell.substr(begin, cell.find_last_not_of(' ') + 1 - begin));
    }
    EXPECT_EQ(cells.size(), 6U) << line;
    if (cells.size() != 6) continue;
    Family family{
        .name = cells[1].substr(1, cells[1].size() - 2), .kind = cells[2], .meaning = cells[4]};
    for (std::string label : words_of(cells[3], ", ")) {
      std::erase(label, '`');
      if (!label.empty()) family.labels.push_back(std::move(label));
    }
    families.push_back(std::move(family));
  }
  return families;
}

TEST(MetricsGuide, HasWhatTheServerShows) {
  const std::vector<Family> on_page = described();
  const std::vector<Family> in_program = shown();
  ASSERT_FALSE(in_program.empty());
  for (const Family& each : in_program) {
    const auto found = std::ranges::find(on_page, each.name, &Family::name);
    if (found == on_page.end()) {
      ADD_FAILURE() << "a row is missing: | `" << each.name << "` | " << each.kind << " | "
                    << join(each.labels) << " | " << each.meaning << " |";
      continue;
    }
    EXPECT_EQ(found->kind, each.kind) << each.name;
    EXPECT_EQ(join(found->labels), join(each.labels)) << each.name;
    EXPECT_TRUE(found->meaning.starts_with(each.meaning))
        << each.name << ": '" << found->meaning << "' does not begin with '" << each.meaning << "'";
  }
  for (const Family& each : on_page) {
    EXPECT_TRUE(each.is_on(in_program)) << "no metric of motley: " << each.name;
    EXPECT_EQ(std::ranges::count(on_page, each.name, &Family::name), 1) << each.name;
  }
}

}  // namespace
}  // namespace motley::server
