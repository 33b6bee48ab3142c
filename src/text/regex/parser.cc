#include "text/regex/parser.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "text/regex/case_insensitive.h"
#include "text/regex/class_parser.h"
#include "text/regex/escape.h"
#include "text/regex/pattern_cursor.h"

namespace motley::text::regex {
namespace {

using unicode::CodeSet;

constexpr int deepest_group = 200;
constexpr std::uint32_t max_repeats = 100'000;

struct Options {
  bool ignore_case = false;
  bool dot_takes_line_feed = false;
  bool extended = false;
};

// A quantifier as written: in Oniguruma {3,1} is possessive, and {3}? is {3} or nothing.
struct Quantifier {
  std::uint32_t min = 0;
  std::uint32_t max = 0;
  bool exact = false;
  bool possessive = false;
  bool interval = false;
};

Node set_node(CodeSet set) { return {.kind = NodeKind::set, .set = std::move(set)}; }

Node anchor_node(Anchor anchor) { return {.kind = NodeKind::anchor, .anchor = anchor}; }

Node wrapped(NodeKind kind, Node child) {
  Node outer{.kind = kind};
  outer.children.push_back(std::move(child));
  return outer;
}

Node repeat_node(Node child, std::uint32_t min, std::uint32_t max, Greed greed) {
  Node repeat = wrapped(NodeKind::repeat, std::move(child));
  repeat.min = min;
  repeat.max = max;
  repeat.greed = greed;
  return repeat;
}

bool is_plain_greedy(const Node& node) {
  return node.kind == NodeKind::repeat && node.greed == Greed::greedy && node.min <= 1 &&
         (node.max == 1 || node.max == unlimited);
}

CodeSet line_feed() { return {{.first = '\n', .last = '\n'}}; }

class Parser {
 public:
  explicit Parser(PatternCursor pattern) : pattern_(std::move(pattern)) {}

  Result<Node> parse() {
    MOTLEY_TRY(Node whole, read_choice({}, 0));
    if (!pattern_.done())
      return pattern_.malformed("closes a group that is not open", "write \\) for a parenthesis");
    return whole;
  }

 private:
  // Reads up to the end, or to the ) of the group.
  Result<Node> read_choice(Options options, int depth) {
    if (depth > deepest_group)
      return pattern_.unsupported("nests groups too deeply", "nest at most 200");
    Node choice{.kind = NodeKind::choice};
    do {
      MOTLEY_TRY(Node sequence, read_sequence(options, depth));
      choice.children.push_back(std::move(sequence));
    } while (pattern_.take_if(U"|"));
    if (choice.children.size() == 1) return std::move(choice.children.front());
    return choice;
  }

  Result<Node> read_sequence(Options options, int depth) {
    Node sequence{.kind = NodeKind::sequence};
    std::u32string text;  // adjacent characters, which may fold together
    const auto end_text = [&] {
      add_text(sequence, text, options);
      text.clear();
    };
    while (!pattern_.done() && pattern_.peek() != '|' && pattern_.peek() != ')') {
      if (options.extended && skip_blank()) continue;
      if (pattern_.take_if(U"(?#")) {
        MOTLEY_TRY_VOID(skip_comment());
        continue;
      }
      MOTLEY_TRY(Atom atom, read_atom(options, depth));
      if (options.extended)
        while (skip_blank()) {
        }
      MOTLEY_TRY(const std::optional<Quantifier> quantifier, read_quantifier());
      if (atom.character.has_value() && !quantifier.has_value()) {
        text += *atom.character;
        continue;
      }
      end_text();
      if (atom.character.has_value()) atom.node = text_node({&*atom.character, 1}, options);
      if (quantifier.has_value()) {
        MOTLEY_TRY(atom.node, quantified(std::move(atom.node), *quantifier, options));
      }
      sequence.children.push_back(std::move(atom.node));
    }
    end_text();
    if (sequence.children.size() == 1) return std::move(sequence.children.front());
    return sequence;
  }

  // A single character, or another node.
  struct Atom {
    std::optional<char32_t> character;
    Node node;
  };

  Node text_node(std::u32string_view text, Options options) const {
    if (options.ignore_case) {
      Node folded = case_insensitive_text(text, fold_width());
      if (folded.children.size() == 1) return std::move(folded.children.front());
      return folded;
    }
    if (text.size() == 1) return set_node({{.first = text[0], .last = text[0]}});
    Node sequence{.kind = NodeKind::sequence};
    for (const char32_t c : text) sequence.children.push_back(set_node({{.first = c, .last = c}}));
    return sequence;
  }

  void add_text(Node& sequence, std::u32string_view text, Options options) const {
    if (text.empty()) return;
    Node node = text_node(text, options);
    if (node.kind != NodeKind::sequence) {
      sequence.children.push_back(std::move(node));
      return;
    }
    for (Node& child : node.children) sequence.children.push_back(std::move(child));
  }

  FoldWidth fold_width() const { return look_behinds_ > 0 ? FoldWidth::single : FoldWidth::any; }

  // White space and comments of extended patterns.
  bool skip_blank() {
    const char32_t c = pattern_.peek();
    if (c == '#') {
      while (!pattern_.done() && pattern_.take() != '\n') {
      }
      return true;
    }
    if (c != ' ' && (c < '\t' || c > '\r')) return false;
    pattern_.skip(1);
    return true;
  }

  Result<void> skip_comment() {
    while (!pattern_.done()) {
      const char32_t c = pattern_.take();
      if (c == ')') return {};
      if (c == '\\' && !pattern_.done()) pattern_.skip(1);
    }
    return pattern_.malformed("has a comment without its )", "close it");
  }

  Result<Atom> read_atom(Options options, int depth) {
    const auto node = [](Node whole) { return Atom{.character = {}, .node = std::move(whole)}; };
    if (at_repeat()) {
      return pattern_.malformed("repeats nothing",
                                "write a backslash before the sign for the character itself");
    }
    const char32_t c = pattern_.take();
    switch (c) {
      case '.':
        return node(
            set_node(options.dot_takes_line_feed ? CodeSet::all() : line_feed().complement()));
      case '^':
        return node(anchor_node(Anchor::line_begin));
      case '$':
        return node(anchor_node(Anchor::line_end));
      case '(': {
        MOTLEY_TRY(Node group, read_group(options, depth));
        return node(std::move(group));
      }
      case '[': {
        MOTLEY_TRY(const CharacterClass parsed, read_class(pattern_));
        if (options.ignore_case) return node(case_insensitive_class(parsed, fold_width()));
        return node(set_node(parsed.set()));
      }
      case '\\':
        return read_escaped();
      default:
        return Atom{.character = c, .node = {}};
    }
  }

  Result<Atom> read_escaped() {
    const auto node = [](Node whole) { return Atom{.character = {}, .node = std::move(whole)}; };
    const char32_t kind = pattern_.peek();
    switch (kind) {
      case 'b':
        return pattern_.skip(1), node(anchor_node(Anchor::word_border));
      case 'B':
        return pattern_.skip(1), node(anchor_node(Anchor::no_word_border));
      case 'A':
        return pattern_.skip(1), node(anchor_node(Anchor::text_begin));
      case 'Z':
        return pattern_.skip(1), node(anchor_node(Anchor::last_line_end));
      case 'z':
        return pattern_.skip(1), node(anchor_node(Anchor::text_end));
      case 'G':
        return pattern_.skip(1), node(anchor_node(Anchor::search_begin));
      case 'N':
        return pattern_.skip(1), node(set_node(line_feed().complement()));
      case 'O':
        return pattern_.skip(1), node(set_node(CodeSet::all()));
      case 'R':
        return pattern_.skip(1), node(line_break());
      case 'X':
      case 'y':
      case 'Y':
        return pattern_.unsupported("uses text segments (\\X, \\y, \\Y)",
                                    "write the characters as a class, as \\p{M}* for marks");
      case 'K':
        return pattern_.unsupported("uses \\K", "use a look-behind, (?<=...)");
      case 'k':
      case 'g':
        if (pattern_.peek(1) == '<' || pattern_.peek(1) == '\'') {
          return pattern_.unsupported(
              kind == 'k' ? "has a back-reference" : "calls a group, which may recur",
              "write the group's pattern out");
        }
        break;
      default:
        break;
    }
    MOTLEY_TRY(Escape escape, read_escape(pattern_, EscapePlace::outside));
    if (escape.character.has_value()) return Atom{.character = escape.character, .node = {}};
    return node(set_node(std::move(escape.set)));
  }

  // \R: CR LF as one unit, or a single line-breaking character.
  static Node line_break() {
    Node pair{.kind = NodeKind::sequence};
    pair.children.push_back(set_node({{.first = '\r', .last = '\r'}}));
    pair.children.push_back(set_node(line_feed()));
    Node choice{.kind = NodeKind::choice};
    choice.children.push_back(std::move(pair));
    choice.children.push_back(set_node({{.first = '\n', .last = '\r'},
                                        {.first = 0x85, .last = 0x85},
                                        {.first = 0x2028, .last = 0x2029}}));
    return wrapped(NodeKind::atomic, std::move(choice));
  }

  // A group, whose ( was taken.
  Result<Node> read_group(Options options, int depth) {
    if (!pattern_.take_if(U"?")) return read_inside(options, depth);
    if (pattern_.take_if(U":")) return read_inside(options, depth);
    if (pattern_.take_if(U">")) {
      MOTLEY_TRY(Node inside, read_inside(options, depth));
      return wrapped(NodeKind::atomic, std::move(inside));
    }
    if (pattern_.take_if(U"=")) return read_look(Direction::ahead, false, options, depth);
    if (pattern_.take_if(U"!")) return read_look(Direction::ahead, true, options, depth);
    if (pattern_.take_if(U"<=")) return read_look(Direction::behind, false, options, depth);
    if (pattern_.take_if(U"<!")) return read_look(Direction::behind, true, options, depth);
    if (pattern_.peek() == '<' || pattern_.peek() == '\'') {
      const char32_t close = pattern_.take() == '<' ? U'>' : U'\'';
      const std::optional<std::string> name = pattern_.take_until(close);
      if (!name.has_value() || name->empty())
        return pattern_.malformed("has a group whose name does not end", "close the name");
      return read_inside(options, depth);
    }
    switch (pattern_.peek()) {
      case '(':
        return pattern_.unsupported("has a condition, (?(...)...)", "write the cases out with |");
      case '~':
        return pattern_.unsupported("has an absent operator, (?~...)", "use a look-ahead");
      case '{':
        return pattern_.unsupported("has a callout, (?{...})", "leave it out");
      case '&':
      case 'R':
        return pattern_.unsupported("recurs", "write the group's pattern out");
      default:
        return read_options(options, depth);
    }
  }

  // The inside of a group, and its ).
  Result<Node> read_inside(Options options, int depth) {
    MOTLEY_TRY(Node inside, read_choice(options, depth + 1));
    if (!pattern_.take_if(U")"))
      return pattern_.malformed("opens a group without closing it", "write \\( for a parenthesis");
    return inside;
  }

  Result<Node> read_look(Direction direction, bool negated, Options options, int depth) {
    const int behind = direction == Direction::behind ? 1 : 0;
    look_behinds_ += behind;
    Result<Node> inside = read_inside(options, depth);
    look_behinds_ -= behind;
    if (!inside.ok()) return inside;
    if (behind != 0) MOTLEY_TRY_VOID(check_look_behind(*inside));
    Node look = wrapped(NodeKind::look, *std::move(inside));
    look.direction = direction;
    look.negated = negated;
    return look;
  }

  Result<void> check_look_behind(const Node& inside) {
    const Width reach = width(inside);
    if (reach.max == unlimited) {
      return pattern_.unsupported("has a look-behind without a bound on its length",
                                  "write {0,n} where it says * or +");
    }
    // Oniguruma's behaviour for such a part is undocumented.
    if (reach.min != reach.max && looks_or_commits(inside)) {
      return pattern_.unsupported(
          "has a look-around or a possessive part in a look-behind of more than one length",
          "write one look-behind for each length");
    }
    return {};
  }

  static bool looks_or_commits(const Node& node) {
    if (node.kind == NodeKind::look || node.kind == NodeKind::atomic) return true;
    return std::any_of(node.children.begin(), node.children.end(), looks_or_commits);
  }

  // (?i-m:...) for a group, (?i-m) to the end of the one it stands in.
  Result<Node> read_options(Options options, int depth) {
    bool on = true;
    for (;;) {
      if (pattern_.done())
        return pattern_.malformed("opens a group without closing it", "close it");
      switch (pattern_.take()) {
        case '-':
          on = false;
          break;
        case 'i':
          options.ignore_case = on;
          break;
        case 'm':
          options.dot_takes_line_feed = on;
          break;
        case 'x':
          options.extended = on;
          break;
        case ':':
          return read_inside(options, depth);
        case ')':
          return read_choice(options, depth + 1);
        default:
          return pattern_.unsupported("sets an option that is not known",
                                      "the options are i, m (a dot takes line feeds) and x");
      }
    }
  }

  bool at_repeat() {
    const char32_t c = pattern_.peek();
    if (c == '*' || c == '+' || c == '?') return true;
    if (c != '{') return false;
    const std::size_t start = pattern_.position();
    const Result<std::optional<Quantifier>> quantifier = read_quantifier();
    pattern_.go_back(start);
    return !quantifier.ok() || quantifier->has_value();
  }

  Result<std::optional<Quantifier>> read_quantifier() {
    if (pattern_.take_if(U"?")) return std::optional(Quantifier{.min = 0, .max = 1});
    if (pattern_.take_if(U"*")) return std::optional(Quantifier{.min = 0, .max = unlimited});
    if (pattern_.take_if(U"+")) return std::optional(Quantifier{.min = 1, .max = unlimited});
    if (pattern_.peek() != '{') return std::optional<Quantifier>();

    // {n}, {n,}, {,n}, {n,m}; anything else is a literal brace.
    const std::size_t start = pattern_.position();
    const auto no_quantifier = [&] {
      pattern_.go_back(start);
      return std::optional<Quantifier>();
    };
    pattern_.skip(1);
    MOTLEY_TRY(const std::optional<std::uint32_t> low, read_count());
    Quantifier quantifier{.min = low.value_or(0), .max = low.value_or(0), .interval = true};
    if (pattern_.take_if(U",")) {
      MOTLEY_TRY(const std::optional<std::uint32_t> high, read_count());
      if (!low.has_value() && !high.has_value()) return no_quantifier();
      quantifier.max = high.value_or(unlimited);
    } else {
      quantifier.exact = true;
      if (!low.has_value()) return no_quantifier();
    }
    if (!pattern_.take_if(U"}")) return no_quantifier();
    if (quantifier.max < quantifier.min) {
      std::swap(quantifier.min, quantifier.max);
      quantifier.possessive = true;
    }
    return std::optional(quantifier);
  }

  Result<std::optional<std::uint32_t>> read_count() {
    std::optional<std::uint32_t> count;
    while (pattern_.peek() >= '0' && pattern_.peek() <= '9') {
      count = count.value_or(0) * 10 + (pattern_.take() - '0');
      if (*count > max_repeats) {
        return pattern_.malformed("repeats more than 100000 times",
                                  "write a smaller number, or none for no limit");
      }
    }
    return count;
  }

  // The node with its quantifier and those that follow.
  Result<Node> quantified(Node node, Quantifier quantifier, Options options) {
    int quantifiers = 0;
    for (std::optional<Quantifier> next = quantifier; next.has_value();) {
      if (++quantifiers > deepest_group)
        return pattern_.unsupported("repeats one thing too often", "write fewer signs in a row");
      if (next->max > 1 && next->max != unlimited && is_place(node)) {
        return pattern_.unsupported("counts repeats of a place, which takes no text",
                                    "leave the count out, or put ? around what else may come");
      }
      Greed greed = Greed::greedy;
      bool possessive = next->possessive;
      bool optional_after = false;
      if (pattern_.peek() == '?' && !possessive) {
        pattern_.skip(1);
        if (next->exact)
          optional_after = true;
        else
          greed = Greed::lazy;
      } else if (pattern_.peek() == '+' && !next->interval) {
        pattern_.skip(1);
        possessive = true;
      }
      node = repeated(std::move(node), next->min, next->max, greed);
      if (possessive) node = wrapped(NodeKind::atomic, std::move(node));
      if (optional_after) node = repeated(std::move(node), 0, 1, Greed::greedy);
      if (options.extended)
        while (skip_blank()) {
        }
      MOTLEY_TRY(next, read_quantifier());
    }
    return node;
  }

  // Whether a node, or one of its alternatives, matches only positions. How often Oniguruma repeats
  // one depends on how it compiles the group.
  static bool is_place(const Node& node) {
    switch (node.kind) {
      case NodeKind::look:
      case NodeKind::anchor:
        return true;
      case NodeKind::choice:
        return std::any_of(node.children.begin(), node.children.end(), is_place);
      default:
        return false;
    }
  }

  // Nested greedy ?, * and + are combined.
  static Node repeated(Node node, std::uint32_t min, std::uint32_t max, Greed greed) {
    Node outer = repeat_node({}, min, max, greed);
    if (!is_plain_greedy(node) || !is_plain_greedy(outer)) {
      outer.children.front() = std::move(node);
      return outer;
    }
    node.min = std::min(node.min, min);
    node.max = std::max(node.max, max);
    return node;
  }

  PatternCursor pattern_;
  int look_behinds_ = 0;  // number of open look-behinds
};

}  // namespace

Result<Node> parse(std::string_view pattern, std::string_view where) {
  MOTLEY_TRY(PatternCursor cursor, PatternCursor::open(pattern, where));
  return Parser(std::move(cursor)).parse();
}

}  // namespace motley::text::regex
