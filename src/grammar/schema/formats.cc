#include "grammar/schema/formats.h"

#include <map>

#include "base/cat.h"

// An optional group is written (...){0,1}, because the compiler takes (-a+)? to match "a" as well.
//
// Each character of a bounded repeat is a state in which the compiler tries all tokens: about 3 ms
// with 200,000 of them. So lengths are bounded only where parsers refuse longer texts.
namespace motley::grammar::schema {
namespace {

using Table = std::map<std::string, Format, std::less<>>;

// A month and a day that exist in every year.
constexpr std::string_view month_and_day =
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"
    "02-(0[1-9]|1[0-9]|2[0-8]))";
constexpr std::string_view year =
    "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])";  // 0001 to 9999
constexpr std::string_view leap_year =
    "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)";

std::string date() { return cat("(", year, "-", month_and_day, "|", leap_year, "-02-29)"); }

// RFC 3339 with upper-case letters, which all parsers read, and without leap seconds, which Python
// does not support. Java reads nine digits of a fraction and no offset beyond 18 hours.
std::string time() {
  return "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9}){0,1}"
         "(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])";
}

// ISO 8601 durations in the form of RFC 3339, which leaves out no unit between two others. The
// number of digits keeps the sum below the 999,999,999 days of Python's timedelta.
std::string duration() {
  constexpr std::string_view seconds = "[0-9]{1,8}S";
  const std::string minutes = cat("[0-9]{1,6}M(", seconds, "){0,1}");
  const std::string time = cat("T(", seconds, "|", minutes, "|[0-9]{1,6}H(", minutes, "){0,1})");
  constexpr std::string_view days = "[0-9]{1,8}D";
  const std::string months = cat("[0-9]{1,7}M(", days, "){0,1}");
  const std::string date = cat("(", days, "|", months, "|[0-9]{1,6}Y(", months, "){0,1})");
  return cat("P(", date, "(", time, "){0,1}|", time, "|[0-9]{1,8}W)");
}

std::string ipv4() {
  constexpr std::string_view byte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  return cat("(", byte, "\\.){3}", byte);
}

// Eight groups, or fewer around one "::", or an IPv4 address behind "::" or "::ffff:".
std::string ipv6() {
  constexpr std::string_view group = "[0-9a-fA-F]{1,4}";
  std::string all = cat("(", group, ":){7}", group);
  constexpr int max_groups = 7;  // beside "::", which stands for at least one
  for (int before = 0; before <= max_groups; ++before) {
    const int behind = max_groups - before;
    all += '|';
    if (before == 0) all += ':';
    if (before == 1) all += cat(group, ":");
    if (before > 1) all += cat("(", group, ":){", before, "}");
    all += ':';
    if (behind > 0) all += cat("(", group, "(:", group, "){0,", behind - 1, "}){0,1}");
  }
  return cat("(", all, "|::([fF]{4}:){0,1}", ipv4(), ")");
}

// Of any version if that is 0.
std::string uuid(int version) {
  constexpr std::string_view digit = "[0-9a-fA-F]";
  const std::string middle = version == 0 ? cat(digit, "{4}-", digit, "{4}")
                                          : cat(version, digit, "{3}-[89abAB]", digit, "{3}");
  return cat(digit, "{8}-", digit, "{4}-", middle, "-", digit, "{12}");
}

// Labels of at most 63 characters, and at most 253 in all: 32 letters and digits in the first label
// and 32 in all others, each preceded by at most one hyphen or dot.
std::string hostname() {
  return "[a-zA-Z0-9](-?[a-zA-Z0-9]){0,31}(\\.[a-zA-Z0-9]([.-]?[a-zA-Z0-9]){0,31}){0,1}";
}

// At most 64 characters before the @, and labels of at most 63 after it, limited in the same way.
// Two consecutive hyphens would begin an encoded label; the top-level domain must be a word.
std::string email() {
  constexpr std::string_view character = "[a-zA-Z0-9_+'-]";
  return cat(character, "(\\.?", character,
             "){0,31}@[a-zA-Z0-9]([.-]?[a-zA-Z0-9]){0,31}\\.[a-zA-Z]{2,12}");
}

constexpr std::string_view escaped = "%[0-9a-fA-F]{2}";
constexpr std::string_view segment_characters = "a-zA-Z0-9._~!$&'()*+,;=:@-";

std::string segment() { return cat("([", segment_characters, "]|", escaped, ")"); }

std::string query_and_fragment() {
  const std::string part = cat("([/?", segment_characters, "]|", escaped, ")*");
  return cat("(\\?", part, "){0,1}(#", part, "){0,1}");
}

// A host name whose last label is no number, or an address. Ports are in range.
std::string authority() {
  constexpr std::string_view label = "[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*";
  constexpr std::string_view last = "[a-zA-Z][a-zA-Z0-9]*(-[a-zA-Z0-9]+)*";
  constexpr std::string_view port =
      "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])";
  constexpr std::string_view user =
      "[a-zA-Z0-9._~!$&'()*+,;=-]+(:[a-zA-Z0-9._~!$&'()*+,;=-]*){0,1}@";
  return cat("(", user, "){0,1}((", label, "\\.)*", last, "|", ipv4(), ")(:", port, "){0,1}");
}

// Any scheme except `file` before an authority; other schemes where a path alone is usual.
std::string uri() {
  const std::string path = cat("(/", segment(), "*)*");
  constexpr std::string_view rest = "[a-z0-9+.-]*";
  const std::string scheme =
      cat("([a-eg-z]", rest, "|f([a-hj-z0-9+.-]", rest, "){0,1}|fi([a-km-z0-9+.-]", rest,
          "){0,1}|fil([a-df-z0-9+.-]", rest, "){0,1}|file[a-z0-9+.-]", rest, ")");
  return cat("(", scheme, "://", authority(), path, "|file://(/", segment(), "+)+/?|",
             "(urn|mailto|tel|sms|geo|data|news|doi|magnet):", segment(), "+", path, ")",
             query_and_fragment());
}

std::string uri_reference() {
  const std::string first = cat("([a-zA-Z0-9._~!$&'()*+,;=@-]|", escaped, ")+");  // without a colon
  const std::string path = cat("(/", segment(), "*)*");
  return cat("(", uri(), "|((//", authority(), path, "|/(", segment(), "+", path, "){0,1}|", first,
             path, "){0,1}", query_and_fragment(), "))");
}

// RFC 6570, in ASCII and without the operators that it reserves.
std::string uri_template() {
  constexpr std::string_view character = "[a-zA-Z0-9_]";
  const std::string name = cat(character, "+(\\.", character, "+)*(:[1-9][0-9]{0,2}|\\*){0,1}");
  return cat("([a-zA-Z0-9._~:/?#@!$&()*+,;=-]|", escaped, "|\\{[+#./;?&]?", name, "(,", name,
             ")*\\})*");
}

// One range for each length of characters in UTF-8: for a range across lengths the compiler would
// accept overlong forms.
std::string json_pointer() {
  return "(/([ !#-.0-\\[\\]-}]|[\\u{a0}-\\u{7ff}]|[\\u{800}-\\u{d7ff}]|[\\u{e000}-\\u{ffff}]|"
         "[\\u{10000}-\\u{10ffff}]|~[01])*)*";
}

std::string relative_json_pointer() { return cat("(0|[1-9][0-9]?)(#|", json_pointer(), ")"); }

Table read_table() {
  Table table = {
      {"date", {date(), 10, 10}},
      {"time", {time(), 9, 24}},
      {"date-time", {cat(date(), "T", time()), 20, 35}},
      {"duration", {duration(), 3, 49}},
      {"ipv4", {ipv4(), 7, 15}},
      {"ipv6", {ipv6(), 2, 39}},
      {"uuid", {uuid(0), 36, 36}},
      {"hostname", {hostname(), 1, 127}},
      {"email", {email(), 6, 140}},
      {"uri", {uri(), 5, {}}},
      {"uri-reference", {uri_reference(), 0, {}}},
      {"uri-template", {uri_template(), 0, {}}},
      {"json-pointer", {json_pointer(), 0, {}}},
      {"relative-json-pointer", {relative_json_pointer(), 1, {}}},
  };
  // As pydantic names them.
  for (const int version : {1, 3, 4, 5, 6, 7, 8})
    table.insert({cat("uuid", version), {uuid(version), 36, 36}});
  return table;
}

}  // namespace

const Format* find_format(std::string_view name) {
  static const Table table = read_table();
  const auto found = table.find(name);
  return found == table.end() ? nullptr : &found->second;
}

}  // namespace motley::grammar::schema
