#include "text/tokenizer/steps/metaspace.h"

namespace motley::text {

Result<MetaspaceFields> MetaspaceFields::parse(const Component& component) {
  MOTLEY_TRY_VOID(component.has_only(
      {"replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"}));
  MetaspaceFields fields;
  MOTLEY_TRY(fields.replacement, component.character("replacement"));
  MOTLEY_TRY(fields.split, component.boolean("split", true));
  // Older files have add_prefix_space; some have both.
  MOTLEY_TRY(const bool add_prefix_space, component.boolean("add_prefix_space", true));
  if (!add_prefix_space) fields.scheme = PrependScheme::never;
  if (component.find("prepend_scheme") == nullptr) return fields;
  MOTLEY_TRY(const std::string scheme, component.string("prepend_scheme"));
  if (scheme == "always")
    fields.scheme = PrependScheme::always;
  else if (scheme == "first")
    fields.scheme = PrependScheme::first;
  else if (scheme == "never")
    fields.scheme = PrependScheme::never;
  else
    return component.refused_value("prepend_scheme", scheme, "write always, first or never");
  if (!add_prefix_space && fields.scheme != PrependScheme::never)
    return component.refused_value("add_prefix_space", "false",
                                   "remove it, or set prepend_scheme to never");
  return fields;
}

}  // namespace motley::text
