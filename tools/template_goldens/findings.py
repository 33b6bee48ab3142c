"""Templates that a random search found rendered otherwise than Jinja renders them, before they were mended."""

from .expressions import VARIABLES

TEMPLATES = [
    "{{ w.split(none, 1) }}{{ w.rsplit(none, 1) }}",
    "{{ ('<{}>' | safe).format('<') }}",
    "{{ mixed | truncate }}",
    "{{ ns != none | unique }}",
    "{{ dict(undefined_name) }}",
    "{{ l | sort(2.5) }}",
    "{{ \"q'\" | int(0, l) }}",
    "{{ s | tojson(indent=2.5) }}",
    "{{ undefined_name | map | reject('name') | list }}",
    "{{ [] | map('upper') | map('nope') | list }}",
    "{{ '1.5' | batch(2.5, n) | reverse | list }}",
    "{{ t | round(none) }}{{ 2.5 | round(none) }}",
    "{{ d[({}, 1)] }}",
    "{{ cycler('a').items }}",
    "{{ '<b>' | escape | list }}{{ '<b>' | e | first }}{{ ['<b>' | e] }}",
    "{% for a, in [[1]] %}{{ a }}{% endfor %}",
]


def cases():
    for template in TEMPLATES:
        yield "findings", template, VARIABLES
