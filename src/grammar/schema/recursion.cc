#include "grammar/schema/recursion.h"

#include <algorithm>
#include <charconv>
#include <cstddef>

namespace motley::grammar::schema {
namespace {

using json::Object;
using json::Value;

class Ends {
 public:
  explicit Ends(std::vector<bool>& known) : known_(known) {}

  bool of(const Value& schema) const {
    const Object* const object = schema.if_object();
    if (object == nullptr) return true;
    if (const Value* const reference = object->find("$ref"))
      return known_[index_of(*reference->if_string())];
    if (const Value* const ways = object->find("anyOf"))
      return std::ranges::any_of(*ways->if_array(), [&](const Value& each) { return of(each); });
    return of_required(*object) && of_items(*object);
  }

 private:
  static std::size_t index_of(std::string_view reference) {
    constexpr std::string_view prefix = "#/$defs/d";
    std::size_t index = 0;
    std::from_chars(reference.data() + prefix.size(), reference.data() + reference.size(), index);
    return index;
  }

  bool of_required(const Object& schema) const {
    const Value* const required = schema.find("required");
    const Value* const properties = schema.find("properties");
    if (required == nullptr || properties == nullptr) return true;
    return std::ranges::all_of(*required->if_array(), [&](const Value& name) {
      const Value* const property = properties->if_object()->find(*name.if_string());
      return property == nullptr || of(*property);
    });
  }

  bool of_items(const Object& schema) const {
    const Value* const least = schema.find("minItems");
    if (least == nullptr) return true;
    const Value* const first = schema.find("prefixItems");
    const std::size_t places = first == nullptr ? 0 : first->if_array()->size();
    const auto needed = static_cast<std::size_t>(*least->if_integer());
    for (std::size_t i = 0; i < std::min(places, needed); ++i) {
      if (!of((*first->if_array())[i])) return false;
    }
    const Value* const rest = schema.find("items");
    return needed <= places || rest == nullptr || of(*rest);
  }

  const std::vector<bool>& known_;
};

}  // namespace

std::vector<bool> have_an_end(const std::vector<const Value*>& definitions) {
  // Definitions mostly refer to later ones, so few passes suffice; what remains after the limit is
  // taken to end.
  constexpr int max_passes = 50;
  std::vector<bool> known(definitions.size());
  for (int pass = 0; pass < max_passes; ++pass) {
    bool found = false;
    for (std::size_t i = definitions.size(); i-- > 0;) {
      if (known[i] || definitions[i] == nullptr || !Ends(known).of(*definitions[i])) continue;
      known[i] = true;
      found = true;
    }
    if (!found) return known;
  }
  known.assign(known.size(), true);
  return known;
}

}  // namespace motley::grammar::schema
