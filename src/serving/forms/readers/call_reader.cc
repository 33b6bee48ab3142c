#include "serving/forms/readers/call_reader.h"

#include "serving/forms/tag_search.h"

namespace motley::serving {

bool CallContext::is_plausible(std::string_view name) { return is_plausible_name(name); }

CallStart start_call(const CallContext& context, std::string_view text, bool last) {
  const ToolForm& form = context.form;
  if (text.empty()) return {.reader = nullptr, .undecided = !last};
  // Models write JSON even where their template shows another form.
  if (text.front() == '{') return {make_json_reader(context, text)};
  if (form.pairs != nullptr) {
    const Begins begins = begins_with(text, form.pairs->before_name, last);
    if (begins == Begins::yes) return {make_pairs_reader(context)};
    if (begins == Begins::perhaps) return {.reader = nullptr, .undecided = true};
  }
  if (form.body == CallBody::gemma) {
    const Begins begins = begins_with(text, "call:", last);
    if (begins == Begins::yes) return {make_gemma_reader(context)};
    return {.reader = nullptr, .undecided = begins == Begins::perhaps};
  }
  // Both of Mistral's forms begin in the same way.
  if (form.body == CallBody::named || !form.separators[0].empty())
    return {make_named_reader(context)};
  if (form.body == CallBody::python) return {make_python_reader(context)};
  if (form.pairs != nullptr && form.pairs->before_name.empty()) return {make_pairs_reader(context)};
  return {};
}

}  // namespace motley::serving
