"""Where motley renders otherwise than Jinja on purpose: (template, why)."""

from .expressions import VARIABLES

DIFFERENCES = [
    ("{{ s | random }}", "refused: not the same twice"),
    ("{{ s | pprint }}", "refused: no use in prompts"),
    ("{{ html | striptags }}", "refused: no use in prompts"),
    ("{{ s | urlize }}", "refused: no use in prompts"),
    ("{{ s | wordwrap(3) }}", "refused: no use in prompts"),
    ("{{ {'a': 1} | xmlattr }}", "refused: no use in prompts"),
    ("{% block b %}x{% endblock %}", "refused: templates of one file inherit nothing"),
    ("{% autoescape false %}x{% endautoescape %}", "refused: nothing is escaped"),
    ("{{ lipsum() is string }}", "no such function: not the same twice"),
    ("{{ 2 ** 63 }}", "arithmetic of integers has 64 bits"),
    ("{{ 9223372036854775807 + 1 }}", "arithmetic of integers has 64 bits"),
    ("{{ 12345678901234567890 }}", "integers that templates write have 64 bits"),
    ("{{ '12345678901234567890' | int + 1 }}", "integers beyond 64 bits are printed and compared, not computed with"),
    ("{{ '12345678901234567890' | int is even }}", "integers beyond 64 bits are printed and compared, not computed with"),
    ("{{ '%x' % '12345678901234567890' | int }}", "integers beyond 64 bits are printed and compared, not computed with"),
    ("{{ (-8) ** 0.5 }}", "no complex numbers"),
    ("{{ '\u0663' | int }}", "only the digits 0 to 9 make numbers"),
    ("{{ '\\ud800' == 'x' }}", "half a surrogate pair is no text"),
    ("{{ '\\N{DIGIT ONE}' }}", "no characters by name"),
    ("{{ 1 .real }}", "numbers have no attributes"),
    ("{{ s.encode() }}", "no bytes"),
    ("{{ s.swapcase() }}", "a method of no use in prompts"),
    ("{{ '{:06,}'.format(1234) }}", "zeros in front and grouping exclude each other"),
    ("{{ {'a': 1}[:1] }}", "a slice of constants that fails is an error as any other"),
    ("{{ no and {[]: 1} }}", "a dict of constants that fails does so when it is reached"),
    ("{% do 1 %}x", "the tag `do` is known"),
    ("{% set n = namespace() %}{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{% set n.m = m %}{% endfor %}[{{ n.m() }}]", "a variable that is gone is undefined, and does not print as 'missing'"),
]


def cases():
    for template, why in DIFFERENCES:
        yield why, template, VARIABLES
