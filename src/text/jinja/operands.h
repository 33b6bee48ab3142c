#pragma once

#include "base/overloaded.h"
#include "text/jinja/syntax/syntax.h"

namespace motley::text::jinja {

template <class Visit>
void for_each_argument(const CallArguments& arguments, Visit visit) {
  for (const auto& each : arguments.positional) visit(*each);
  for (const auto& [name, each] : arguments.keyword) visit(*each);
  if (arguments.spread != nullptr) visit(*arguments.spread);
  if (arguments.keyword_spread != nullptr) visit(*arguments.keyword_spread);
}

// Calls `visit` with each direct operand of an expression.
template <class Visit>
void for_each_operand(const Expression& expression, Visit visit) {
  const auto visit_any = [&visit](const ExpressionPtr& each) {
    if (each != nullptr) visit(*each);
  };
  const auto visit_all = [&visit](const std::vector<ExpressionPtr>& all) {
    for (const auto& each : all) visit(*each);
  };
  std::visit(Overloaded{
                 [](const Constant&) {},
                 [](const Name&) {},
                 [&](const ListLiteral& node) { visit_all(node.items); },
                 [&](const TupleLiteral& node) { visit_all(node.items); },
                 [&](const DictLiteral& node) {
                   for (const auto& [key, value] : node.items) {
                     visit(*key);
                     visit(*value);
                   }
                 },
                 [&](const Conditional& node) {
                   visit(*node.test);
                   visit(*node.yes);
                   visit_any(node.no);
                 },
                 [&](const Binary& node) {
                   visit(*node.left);
                   visit(*node.right);
                 },
                 [&](const Logical& node) {
                   visit(*node.left);
                   visit(*node.right);
                 },
                 [&](const Not& node) { visit(*node.operand); },
                 [&](const Sign& node) { visit(*node.operand); },
                 [&](const Comparison& node) {
                   visit(*node.first);
                   for (const auto& [meaning, each] : node.rest) visit(*each);
                 },
                 [&](const Concatenation& node) { visit_all(node.parts); },
                 [&](const Attribute& node) { visit(*node.object); },
                 [&](const Item& node) {
                   visit(*node.object);
                   visit(*node.key);
                 },
                 [&](const Slice& node) {
                   visit(*node.object);
                   visit_any(node.start);
                   visit_any(node.stop);
                   visit_any(node.step);
                 },
                 [&](const Call& node) {
                   visit(*node.callee);
                   for_each_argument(node.arguments, visit);
                 },
                 [&](const FilterCall& node) {
                   visit_any(node.operand);
                   for_each_argument(node.arguments, visit);
                 },
                 [&](const TestCall& node) {
                   visit(*node.operand);
                   for_each_argument(node.arguments, visit);
                 },
             },
             expression.node);
}

// Calls `visit` with each name that a target assigns to; attributes of namespaces do not count.
template <class Visit>
void for_each_name(const Target& target, Visit visit) {
  if (const auto* const name = std::get_if<NameTarget>(&target.node)) visit(name->name);
  if (const auto* const tuple = std::get_if<TupleTarget>(&target.node)) {
    for (const Target& item : tuple->items) for_each_name(item, visit);
  }
}

}  // namespace motley::text::jinja
