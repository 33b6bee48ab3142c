#include "text/tokenizer/steps/pattern.h"

#include <algorithm>
#include <optional>

#include "base/cat.h"

namespace motley::text {
namespace {

// A match joins the preceding piece, unless that ends with a match.
std::vector<Span> merge_with_previous(const std::vector<Stretch>& stretches) {
  std::vector<Span> pieces;
  bool after_match = false;
  for (const Stretch& stretch : stretches) {
    if (stretch.matched && !after_match && !pieces.empty())
      pieces.back().end = stretch.span.end;
    else
      pieces.push_back(stretch.span);
    after_match = stretch.matched;
  }
  return pieces;
}

// The same in the other direction.
std::vector<Span> merge_with_next(const std::vector<Stretch>& stretches) {
  std::vector<Span> pieces;
  bool before_match = false;
  for (auto stretch = stretches.rbegin(); stretch != stretches.rend(); ++stretch) {
    if (stretch->matched && !before_match && !pieces.empty())
      pieces.back().begin = stretch->span.begin;
    else
      pieces.push_back(stretch->span);
    before_match = stretch->matched;
  }
  std::ranges::reverse(pieces);
  return pieces;
}

std::vector<Span> join_contiguous(const std::vector<Stretch>& stretches) {
  std::vector<Span> pieces;
  bool after_match = false;
  for (const Stretch& stretch : stretches) {
    if (stretch.matched == after_match && !pieces.empty())
      pieces.back().end = stretch.span.end;
    else
      pieces.push_back(stretch.span);
    after_match = stretch.matched;
  }
  return pieces;
}

void append_filled(std::vector<Span>& pieces, const std::vector<Span>& more) {
  for (const Span& span : more)
    if (span.begin != span.end) pieces.push_back(span);
}

}  // namespace

Result<Pattern> Pattern::parse(const Component& component, std::string_view field) {
  const std::string where = component.where(field);
  MOTLEY_TRY(const json::Value* value, component.value(field));
  MOTLEY_TRY(const json::Object* object, value->as_object(where));
  if (object->size() == 1) {
    const json::Member& member = object->members().front();
    if (member.key == "String" || member.key == "Regex") {
      MOTLEY_TRY(const std::string* pattern, member.value.as_string(where));
      if (member.key == "Regex") return regex(*pattern, where);
      return Pattern(*pattern);
    }
  }
  return component.refused_value(field, json::write(*value), "write one of String and Regex");
}

Result<Pattern> Pattern::regex(std::string_view expression, std::string_view where) {
  MOTLEY_TRY(Regex regex, Regex::compile(expression, where));
  return Pattern(std::move(regex));
}

Result<std::optional<Span>> Pattern::find(std::string_view text, std::size_t from,
                                          std::size_t& spent) const {
  const std::string* needle = literal();
  if (needle == nullptr) return std::get<Regex>(pattern_).find(text, from, spent);
  const std::size_t at = text.find(*needle, from);
  if (at == std::string_view::npos) return std::optional<Span>();
  return std::optional<Span>(Span{.begin = at, .end = at + needle->size()});
}

Result<SplitBehavior> parse_split_behavior(const Component& component) {
  MOTLEY_TRY(const std::string name, component.string("behavior"));
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  return component.refused_value(
      "behavior", name,
      "write Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

void append_pieces(std::vector<Span>& pieces, const std::vector<Stretch>& stretches,
                   SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::removed:
    case SplitBehavior::isolated:
      for (const Stretch& stretch : stretches) {
        if (stretch.matched && behavior == SplitBehavior::removed) continue;
        if (stretch.span.begin != stretch.span.end) pieces.push_back(stretch.span);
      }
      return;
    case SplitBehavior::merged_with_previous:
      return append_filled(pieces, merge_with_previous(stretches));
    case SplitBehavior::merged_with_next:
      return append_filled(pieces, merge_with_next(stretches));
    case SplitBehavior::contiguous:
      return append_filled(pieces, join_contiguous(stretches));
  }
}

}  // namespace motley::text
