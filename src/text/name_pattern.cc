#include "text/name_pattern.h"

#include <map>
#include <optional>
#include <utility>

#include "base/cat.h"
#include "base/check.h"

namespace motley::text {

namespace {

constexpr std::size_t max_nodes = 20'000;
constexpr int max_depth = 100;
constexpr int max_looks = 8;  // after expanding repetitions
constexpr int unbounded = -1;
constexpr std::uint64_t steps_of_a_search = 12;  // for a literal in a name

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

}  // namespace

// Recursive descent into a tree, then Thompson's construction from the end backwards.
class PatternParser {
 public:
  explicit PatternParser(std::string_view text) : text_(text) {}

  Result<NamePattern> parse() {
    MOTLEY_TRY(const std::uint32_t root, alternatives(0));
    if (at_ < text_.size()) return bad("unbalanced parenthesis");
    pattern_.nodes_.push_back({NamePattern::Op::accept});
    const auto start = build(root, 0);
    if (!start) {
      return Error(ErrorCode::unsupported, cat("the pattern ", quote(text_), " is too large"));
    }
    pattern_.start_ = *start;
    pattern_.literal_ = longest_literal(trees_[root]);
    return std::move(pattern_);
  }

 private:
  using Op = NamePattern::Op;
  using Bytes = NamePattern::Bytes;

  enum class Kind : std::uint8_t { sequence, alternatives, repeat, bytes, assertion, look };
  struct Tree {
    Kind kind = Kind::sequence;
    std::vector<std::uint32_t> parts = {};
    int least = 0;
    int most = 0;
    std::uint32_t bytes = 0;
    Op op = Op::begin;
  };

  // The longest run of literal characters in a sequence.
  std::string longest_literal(const Tree& tree) const {
    std::string longest;
    if (tree.kind != Kind::sequence) return longest;
    std::string run;
    for (const std::uint32_t index : tree.parts) {
      const Tree& part = trees_[index];
      const Bytes* const bytes =
          part.kind == Kind::bytes ? &pattern_.classes_[part.bytes] : nullptr;
      if (bytes == nullptr || bytes->count() != 1) {
        run.clear();
        continue;
      }
      for (std::size_t byte = 0; byte < bytes->size(); ++byte)
        if (bytes->test(byte)) run += static_cast<char>(byte);
      if (run.size() > longest.size()) longest = run;
    }
    return longest;
  }

  Error bad(std::string_view why) const {
    return Error(ErrorCode::bad_file,
                 cat("the pattern ", quote(text_), " is no regular expression: ", why));
  }
  Error unsupported(std::string_view what) const {
    return Error(ErrorCode::unsupported, cat("the pattern ", quote(text_), " uses ", what));
  }

  bool more() const { return at_ < text_.size(); }
  bool take(char c) {
    if (!more() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::uint32_t add(Tree tree) {
    trees_.push_back(std::move(tree));
    return static_cast<std::uint32_t>(trees_.size() - 1);
  }
  std::uint32_t add_bytes(const Bytes& bytes) {
    pattern_.classes_.push_back(bytes);
    Tree tree{Kind::bytes};
    tree.bytes = static_cast<std::uint32_t>(pattern_.classes_.size() - 1);
    return add(std::move(tree));
  }
  std::uint32_t add_assertion(Op op) {
    Tree tree{Kind::assertion};
    tree.op = op;
    return add(std::move(tree));
  }

  Result<std::uint32_t> alternatives(int depth) {
    if (depth > max_depth) return unsupported("groups nested too deeply");
    Tree tree{Kind::alternatives};
    do {
      MOTLEY_TRY(const std::uint32_t part, sequence(depth));
      tree.parts.push_back(part);
    } while (take('|'));
    return tree.parts.size() == 1 ? tree.parts[0] : add(std::move(tree));
  }

  Result<std::uint32_t> sequence(int depth) {
    Tree tree{Kind::sequence};
    while (more() && text_[at_] != '|' && text_[at_] != ')') {
      MOTLEY_TRY(std::uint32_t part, atom(depth));
      MOTLEY_TRY(part, repeated(part));
      tree.parts.push_back(part);
    }
    return add(std::move(tree));
  }

  Result<std::uint32_t> repeated(std::uint32_t part) {
    int least = 1;
    int most = 1;
    if (take('*')) {
      least = 0;
      most = unbounded;
    } else if (take('+')) {
      most = unbounded;
    } else if (take('?')) {
      least = 0;
    } else if (!counted(least, most)) {
      return part;
    }
    if (take('+')) return unsupported("a possessive repetition");
    static_cast<void>(take('?'));  // lazy quantifiers match the same names
    int again_least = 0;
    int again_max = 0;
    const std::size_t here = at_;
    if (take('*') || take('+') || take('?') || counted(again_least, again_max)) {
      at_ = here;
      return bad("multiple repeat");
    }
    if (most != unbounded && most < least) return bad("a repetition from more to less");
    if (least > 1000 || most > 1000) return unsupported("a repetition of more than 1000");
    Tree tree{Kind::repeat};
    tree.parts.push_back(part);
    tree.least = least;
    tree.most = most;
    return add(std::move(tree));
  }

  // "{m}", "{m,}", "{,n}" or "{m,n}"; anything else is a literal brace.
  bool counted(int& least, int& most) {
    const std::size_t here = at_;
    if (!take('{')) return false;
    const auto low = number();
    std::optional<int> high = low;
    const bool comma = take(',');
    if (comma) high = number();
    if ((!low && !comma) || !take('}')) {
      at_ = here;
      return false;
    }
    least = low.value_or(0);
    most = high.value_or(unbounded);
    return true;
  }
  std::optional<int> number() {
    std::optional<int> value;
    while (more() && text_[at_] >= '0' && text_[at_] <= '9') {
      value = std::min(value.value_or(0) * 10 + (text_[at_] - '0'), 100'000);
      ++at_;
    }
    return value;
  }

  Result<std::uint32_t> atom(int depth) {
    const char c = text_[at_++];
    switch (c) {
      case '(':
        return group(depth);
      case '[':
        return bracket();
      case '\\':
        return escape();
      case '^':
        return add_assertion(Op::begin);
      case '$':
        return add_assertion(Op::end);
      case '*':
      case '+':
      case '?':
        return bad("nothing to repeat");
      case '.': {
        Bytes all;
        all.set();
        all.reset('\n');
        return add_bytes(all);
      }
      default: {
        Bytes one;
        one.set(static_cast<unsigned char>(c));
        return add_bytes(one);
      }
    }
  }

  Result<std::uint32_t> group(int depth) {
    std::optional<Op> look;
    if (take('?')) {
      if (take('P')) {
        if (!take('<')) return unsupported("a back reference");
        while (more() && is_word(text_[at_])) ++at_;
        if (!take('>')) return bad("a group's name without an end");
      } else if (take('=')) {
        look = Op::ahead;
      } else if (take('!')) {
        look = Op::not_ahead;
      } else if (!take(':')) {
        return unsupported("a look-behind or flags in a group");
      }
    }
    MOTLEY_TRY(const std::uint32_t inside, alternatives(depth + 1));
    if (!take(')')) return bad("a parenthesis without an end");
    if (!look) return inside;
    Tree tree{Kind::look};
    tree.parts.push_back(inside);
    tree.op = *look;
    return add(std::move(tree));
  }

  // The class of \d, \w, \s or their negations.
  static std::optional<Bytes> class_of(char c) {
    Bytes bytes;
    const char lower = static_cast<char>(c | 0x20);
    for (int byte = 0; byte < 128; ++byte) {
      const char x = static_cast<char>(byte);
      const bool space = x == ' ' || (x >= '\t' && x <= '\r') || (byte >= 0x1C && byte <= 0x1F);
      const bool in = lower == 'd' ? x >= '0' && x <= '9' : lower == 'w' ? is_word(x) : space;
      if (in) bytes.set(static_cast<std::size_t>(byte));
    }
    if (lower != 'd' && lower != 'w' && lower != 's') return std::nullopt;
    return c == lower ? bytes : ~bytes;
  }
  static std::optional<char> control(char c) {
    switch (c) {
      case 'n':
        return '\n';
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      default:
        return std::nullopt;
    }
  }

  Result<std::uint32_t> escape() {
    if (!more()) return bad("a backslash at the end");
    const char c = text_[at_++];
    if (const auto bytes = class_of(c)) return add_bytes(*bytes);
    if (c == 'b') return add_assertion(Op::boundary);
    if (c == 'B') return add_assertion(Op::not_boundary);
    if (c == 'A') return add_assertion(Op::begin);
    if (c == 'Z') return add_assertion(Op::end);
    Bytes one;
    if (const auto byte = control(c)) {
      one.set(static_cast<unsigned char>(*byte));
    } else if (is_word(c)) {
      return unsupported(cat("the escape \\", c));
    } else {
      one.set(static_cast<unsigned char>(c));
    }
    return add_bytes(one);
  }

  // One end of a range, or a whole class.
  Result<std::pair<Bytes, int>> bracket_item() {
    Bytes bytes;
    char c = text_[at_++];
    if (c == '\\') {
      if (!more()) return bad("a backslash at the end");
      c = text_[at_++];
      if (const auto whole = class_of(c)) return std::pair(*whole, -1);
      if (const auto byte = control(c)) {
        c = *byte;
      } else if (is_word(c)) {
        return unsupported(cat("the escape \\", c));
      }
    }
    const auto code = static_cast<unsigned char>(c);
    if (code >= 128) return unsupported("a class with characters beyond ASCII");
    bytes.set(code);
    return std::pair(bytes, static_cast<int>(code));
  }

  Result<std::uint32_t> bracket() {
    const bool negated = take('^');
    Bytes bytes;
    bool first = true;
    while (true) {
      if (!more()) return bad("a bracket without an end");
      if (!first && take(']')) break;
      first = false;
      MOTLEY_TRY(const auto low, bracket_item());
      const bool range = at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']';
      if (!range) {
        bytes |= low.first;
        continue;
      }
      ++at_;
      MOTLEY_TRY(const auto high, bracket_item());
      if (low.second < 0 || high.second < 0 || high.second < low.second)
        return bad("a range of characters from more to less");
      for (int code = low.second; code <= high.second; ++code)
        bytes.set(static_cast<std::size_t>(code));
    }
    return add_bytes(negated ? ~bytes : bytes);
  }

  std::optional<std::uint32_t> node(NamePattern::Node node) {
    if (pattern_.nodes_.size() >= max_nodes) return std::nullopt;
    pattern_.nodes_.push_back(node);
    return static_cast<std::uint32_t>(pattern_.nodes_.size() - 1);
  }

  // Nodes for a tree that continue with `next`; nothing if there are too many. `spent_` limits the
  // work for repetitions of the empty pattern.
  std::optional<std::uint32_t> build(std::uint32_t index, std::uint32_t next) {
    if (++spent_ > 4 * max_nodes) return std::nullopt;
    const Tree& tree = trees_[index];
    switch (tree.kind) {
      case Kind::bytes:
        return node({Op::byte_class, next, tree.bytes});
      case Kind::assertion:
        return node({tree.op, next});
      case Kind::look: {
        if (++looks_ > max_looks) return std::nullopt;
        const auto end = node({Op::accept});
        const auto inside = end ? build(tree.parts[0], *end) : std::nullopt;
        return inside ? node({tree.op, next, *inside}) : std::nullopt;
      }
      case Kind::sequence: {
        std::optional<std::uint32_t> at = next;
        for (std::size_t i = tree.parts.size(); i-- > 0 && at;) at = build(tree.parts[i], *at);
        return at;
      }
      case Kind::alternatives: {
        auto at = build(tree.parts.back(), next);
        for (std::size_t i = tree.parts.size() - 1; i-- > 0 && at;) {
          const auto way = build(tree.parts[i], next);
          at = way ? node({Op::split, *way, *at}) : std::nullopt;
        }
        return at;
      }
      case Kind::repeat: {
        std::optional<std::uint32_t> at = next;
        if (tree.most == unbounded) {
          const auto loop = node({Op::split, 0, next});
          if (!loop) return std::nullopt;
          const auto body = build(tree.parts[0], *loop);
          if (!body) return std::nullopt;
          pattern_.nodes_[*loop].next = *body;
          at = loop;
        } else {
          for (int i = tree.least; i < tree.most && at; ++i) {
            const auto body = build(tree.parts[0], *at);
            at = body ? node({Op::split, *body, next}) : std::nullopt;
          }
        }
        for (int i = 0; i < tree.least && at; ++i) at = build(tree.parts[0], *at);
        return at;
      }
    }
    return std::nullopt;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t spent_ = 0;
  int looks_ = 0;
  std::vector<Tree> trees_;
  NamePattern pattern_;
};

Result<NamePattern> NamePattern::compile(std::string_view text) {
  if (text.size() > 4096) {
    return Error(ErrorCode::unsupported, cat("the pattern ", quote(text), " is too long"));
  }
  return PatternParser(text).parse();
}

// Simulates the automaton: all paths at once, byte by byte.
class PatternRun {
 public:
  using Op = NamePattern::Op;

  struct Rule {
    std::uint32_t start = 0;
    std::size_t from = 0;      // offset in the name
    bool behind_dots = false;  // may also start after each dot
    bool to_the_end = false;   // must match up to the end
  };

  static constexpr std::size_t steps_of_a_run = 32;  // the cost of its allocations
  // numbers that are zeroed in the time of a step
  static constexpr std::size_t cleared_a_step = 16;

  // By look-ahead and position: whether it matches there.
  using Looks = std::map<std::pair<std::uint32_t, std::size_t>, bool>;

  PatternRun(const NamePattern& pattern, std::string_view name, Looks& looks, MatchBudget* budget)
      : pattern_(pattern),
        name_(name),
        looks_(looks),
        budget_(budget),
        seen_(pattern.nodes_.size(), 0) {
    entered_ = steps_of_a_run + seen_.size() / cleared_a_step;
  }

  bool accepts(const Rule& rule) {
    for (position_ = rule.from; position_ <= name_.size(); ++position_) {
      if (budget_ != nullptr && !budget_->take(1 + std::exchange(entered_, 0))) return false;
      then_.clear();
      for (const std::uint32_t at : now_) {
        const NamePattern::Node& node = pattern_.nodes_[at];
        const auto byte = static_cast<unsigned char>(name_[position_ - 1]);
        if (pattern_.classes_[node.other].test(byte)) enter(node.next);
      }
      const bool starts = position_ == rule.from ||
                          (rule.behind_dots && position_ > 0 && name_[position_ - 1] == '.');
      if (starts) enter(rule.start);
      if (accepted_ && (!rule.to_the_end || position_ == name_.size())) return true;
      accepted_ = false;
      now_.swap(then_);
    }
    return false;
  }

 private:
  // Follows all transitions that consume no byte.
  void enter(std::uint32_t first) {
    stack_.push_back(first);
    while (!stack_.empty()) {
      const std::uint32_t at = stack_.back();
      stack_.pop_back();
      ++entered_;
      if (seen_[at] == position_ + 1) continue;
      seen_[at] = position_ + 1;
      const NamePattern::Node& node = pattern_.nodes_[at];
      if (node.op == Op::byte_class) {
        then_.push_back(at);
      } else if (node.op == Op::accept) {
        accepted_ = true;
      } else if (passes(node)) {
        stack_.push_back(node.next);
        if (node.op == Op::split) stack_.push_back(node.other);
      }
    }
  }

  bool passes(const NamePattern::Node& node) const {
    const bool before = position_ > 0 && is_word(name_[position_ - 1]);
    const bool behind = position_ < name_.size() && is_word(name_[position_]);
    switch (node.op) {
      case Op::begin:
        return position_ == 0;
      case Op::end:
        return position_ == name_.size();
      case Op::boundary:
        return before != behind;
      case Op::not_boundary:
        return before == behind;
      case Op::ahead:
        return follows(node.other);
      case Op::not_ahead:
        return !follows(node.other);
      default:
        return true;
    }
  }

  // Whether a look-ahead matches here.
  bool follows(std::uint32_t start) const {
    const std::pair key(start, position_);
    if (const auto known = looks_.find(key); known != looks_.end()) return known->second;
    PatternRun inside(pattern_, name_, looks_, budget_);
    const bool found = inside.accepts({.start = start, .from = position_});
    looks_.emplace(key, found);
    return found;
  }

  const NamePattern& pattern_;
  std::string_view name_;
  Looks& looks_;
  MatchBudget* budget_;            // null: none
  std::size_t entered_ = 0;        // steps that have not been taken from the budget yet
  std::vector<std::size_t> seen_;  // position + 1 at which a node was last entered
  std::vector<std::uint32_t> now_;
  std::vector<std::uint32_t> then_;
  std::vector<std::uint32_t> stack_;
  std::size_t position_ = 0;
  bool accepted_ = false;
};

bool NamePattern::matches_end(std::string_view name, MatchBudget* budget) const {
  if (budget != nullptr && !budget->take(steps_of_a_search)) return false;
  if (name.find(literal_) == std::string_view::npos) return false;
  PatternRun::Looks looks;
  return PatternRun(*this, name, looks, budget)
      .accepts({.start = start_, .behind_dots = true, .to_the_end = true});
}

bool NamePattern::matches_start(std::string_view name) const {
  PatternRun::Looks looks;
  return PatternRun(*this, name, looks, nullptr).accepts({.start = start_});
}

}  // namespace motley::text
