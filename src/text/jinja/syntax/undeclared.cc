#include "text/jinja/syntax/undeclared.h"

#include "base/overloaded.h"
#include "text/jinja/operands.h"

namespace motley::text::jinja {
namespace {

class Search {
 public:
  explicit Search(std::set<std::string> names) : names_(std::move(names)) {}

  std::set<std::string> take() { return std::move(found_); }

  void visit(const Block& block) {
    for (const Statement& statement : block) visit(statement);
  }

 private:
  void visit(const Expression& expression) {
    if (const auto* const name = std::get_if<Name>(&expression.node)) {
      if (names_.contains(name->name)) found_.insert(name->name);
    }
    for_each_operand(expression, [this](const Expression& each) { visit(each); });
  }
  void visit(const ExpressionPtr& expression) {
    if (expression != nullptr) visit(*expression);
  }
  void visit(const Target& target) {
    for_each_name(target, [this](const std::string& name) { names_.erase(name); });
  }
  void visit(const Function& function) {
    for (const auto& [name, value] : function.parameters) names_.erase(name);
    for (const auto& [name, value] : function.parameters) visit(value);
    visit(function.body);
  }

  // In the order in which Jinja visits them, which decides what counts as assigned before.
  void visit(const Statement& statement) {
    std::visit(Overloaded{
                   [](const Data&) {},
                   [&](const Print& node) { visit(node.value); },
                   [&](const For& node) {
                     visit(node.target);
                     visit(node.iterable);
                     visit(node.body);
                     visit(node.otherwise);
                     visit(node.filter);
                   },
                   [&](const If& node) {
                     for (const auto& [test, body] : node.branches) {
                       visit(test);
                       visit(body);
                     }
                     visit(node.otherwise);
                   },
                   [&](const Macro& node) { visit(node.function); },
                   [&](const CallBlock& node) {
                     visit(node.call);
                     visit(node.function);
                   },
                   [&](const FilterBlock& node) {
                     visit(node.body);
                     visit(node.filter);
                   },
                   [&](const Set& node) {
                     visit(node.target);
                     visit(node.value);
                   },
                   [&](const SetBlock& node) {
                     visit(node.target);
                     visit(node.filter);
                     visit(node.body);
                   },
                   [&](const With& node) {
                     for (const auto& [target, value] : node.bindings) visit(target);
                     for (const auto& [target, value] : node.bindings) visit(value);
                     visit(node.body);
                   },
                   [&](const Generation& node) { visit(node.function); },
                   [&](const Do& node) { visit(node.value); },
                   [](const Break&) {},
                   [](const Continue&) {},
               },
               statement.node);
  }

  std::set<std::string> names_;
  std::set<std::string> found_;
};

}  // namespace

std::set<std::string> undeclared(const Block& block, std::set<std::string> names) {
  Search search(std::move(names));
  search.visit(block);
  return search.take();
}

}  // namespace motley::text::jinja
