"""Grammars, expressions and schemas that are small to send and endless to compile or to follow."""

import random

from attacker import Attacker
from harness import Attack
from random_grammars import random_form

# A grammar is followed, or refused: what it takes is its sender's fault. Of many at once some are put off: no more than
# a few may take longer than a second, and how many do is the machine's matter.
JUDGED = frozenset({200, 400})
PUT_OFF = frozenset({429})


def judge_at_once(attacker: Attacker, calls: list, threads: int) -> None:
    """Some may be put off, but not all."""
    answers = attacker.all_at_once(calls, threads)
    attacker.expect(any(answer.status in JUDGED for answer in answers), "none of the grammars was judged")


def stars_seconds(attacker: Attacker) -> float:
    """Then the client leaves: texts of one grammar may take their time in turns."""
    return attacker.pause(4, 2)


def compile_seconds(attacker: Attacker) -> float:
    """The same, short of the limit of a compilation."""
    return attacker.pause(8, 3)


RECURSIVE = [
    'root ::= (root){2}',
    'root ::= "a" | (root){0,3}',
    'root ::= "a"\nunused ::= (unused){2}',
    'root ::= (other){2}\nother ::= (root){2}',
    'root ::= "a" (other){0,3}\nother ::= "b" | (third){2,}\nthird ::= (other){1,4}',
    'root ::= (root){2,}',
    'root ::= (root)* "a"',
    'root ::= root',
    'root ::= root "a" | "a"',
    'root ::= ((root)?){1,5}',
    'root ::= ("a" root){3} | ""',
    'root ::= (""){1000000}',
    'root ::= ("a"{1000}){1000}',
    'root ::= "a"{0,2147483647}',
    'root ::= ((("a"{99}){99}){99}){99}',
    'root ::= [a-z]{1,99999999}',
    'root ::= ' + '(' * 20000 + '"a"' + ')' * 20000,
    'root ::= ' + '(' * 2000 + '"a"' + '){2}' * 2000,
    '\n'.join(['root ::= r0'] + [f'r{i} ::= r{i + 1}' for i in range(20000)] + ['r20000 ::= "a"']),
    '\n'.join(['root ::= r0'] + [f'r{i} ::= r{i + 1} r{i + 1}' for i in range(40)] + ['r40 ::= "a"']),
    'root ::= "a" (= root) root',
    'root ::= TagDispatch(("a", root), ("b", root))',
]
STARS = [
    '(' * 15 + '[a-z ]*' + ')*' * 15,
    '(?:(?:[^x]??)*?)+?',
    '(' + '|'.join(['[a-z ]+'] * 200) + ')*',
    '(' * 40 + 'a*' + ')*' * 40,
    '((((a|b)*c?)*d?)*e?)*',
    '([a-z]*[a-z ]*)*([a-z]*[a-z ]*)*([a-z]*[a-z ]*)*',
    '(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)x',
    '(.?){500}(.){500}',
    '(a{1,200}){1,200}',
    '(' * 3000 + 'a' + ')' * 3000,
    '[' + ''.join(chr(0x4e00 + 2 * i) for i in range(1500)) + ']*',
    '(|a|b|)*(|c|)*' * 30,
    '.{0,100000}',
]


def grammar_recursive_repeat(attacker: Attacker) -> None:
    attacker.all_at_once([lambda text=text: attacker.complete(guided_grammar=text) for text in RECURSIVE], 4)


def regex_nested_stars(attacker: Attacker) -> None:
    def ask(text: str):
        return lambda: attacker.complete(stars_seconds(attacker), guided_regex=text, max_tokens=60, temperature=1, seed=1)

    attacker.all_at_once([ask(text) for text in STARS])
    attacker.all_at_once([ask(STARS[0])] * 16)


def optionals(count: int, start: int = 0) -> dict:
    """An object that may have any of many members of any kind."""
    return {"type": "object", "properties": {f"p{index}": {} for index in range(start, start + count)},
            "additionalProperties": False}


def schema_many_optionals(attacker: Attacker) -> None:
    """Several at once, and as many clients that do not wait for theirs."""
    for start, count in ((1, 2000), (2, 12000), (3, 12000)):
        with attacker.connect() as connection:
            connection.sendall(attacker.completion_bytes(guided_json=optionals(count, start)))
    calls = [lambda count=count, start=start: attacker.complete(guided_json=optionals(count, start),
                                                                       seconds=compile_seconds(attacker))
             for start, count in ((4, 2000), (5, 2000), (6, 12000), (7, 12000))]
    calls.append(lambda: attacker.chat(compile_seconds(attacker), response_format={
        "type": "json_schema", "json_schema": {"name": "a", "schema": optionals(4000, 8), "strict": True}}))
    attacker.all_at_once(calls)


def nested(depth: int) -> dict:
    schema: dict = {"type": "integer"}
    for level in range(depth):
        schema = {"type": "object", "properties": {"a": schema, "b": {"$ref": "#"}}} if level % 2 else {
            "anyOf": [schema, {"type": "array", "items": schema if level < 8 else {"$ref": "#"}}]}
    return schema


SCHEMAS = [
    {"$ref": "#"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
    {"allOf": [{"$ref": "#"}]},
    {"type": "string", "pattern": STARS[0]},
    {"type": "string", "pattern": STARS[1], "minLength": 100000},
    {"type": "string", "minLength": 1000000, "maxLength": 2000000},
    {"type": "array", "items": {"type": "integer"}, "minItems": 100000, "maxItems": 10**9},
    {"type": "array", "prefixItems": [{"type": "integer"}] * 5000},
    {"type": "integer", "minimum": -(10**18), "maximum": 10**18},
    {"type": "number", "minimum": -1e308, "maximum": 1e308},
    {"enum": [f"value {index}" for index in range(20000)]},
    {"const": "x" * 100000},
    {"type": "object", "patternProperties": {STARS[0]: {"type": "integer"}, ".*": {"$ref": "#"}}},
    {"type": "object", "additionalProperties": {"$ref": "#"}, "minProperties": 5000},
    {"type": "object", "properties": {"a" * 50000: {"type": "null"}}, "required": ["b"] * 5000},
    {"anyOf": [{"type": "object", "properties": {f"k{index}": {"$ref": "#"}}} for index in range(500)]},
    nested(14),
]


def tool_schemas(attacker: Attacker) -> None:
    """One after the other through the fields that take a schema."""
    def tool(schema: dict, name: str = "call") -> dict:
        return {"type": "function", "function": {"name": name, "strict": True, "parameters": schema}}

    calls = []
    for index, schema in enumerate(SCHEMAS):
        ways = [lambda s=schema: attacker.complete(compile_seconds(attacker), guided_json=s),
                lambda s=schema: attacker.chat(compile_seconds(attacker), response_format={
                    "type": "json_schema", "json_schema": {"name": "a", "schema": s}}),
                lambda s=schema: attacker.chat(compile_seconds(attacker), tools=[tool(s)], tool_choice="required"),
                lambda s=schema: attacker.chat(compile_seconds(attacker), tools=[tool(s)], tool_choice={
                    "type": "function", "function": {"name": "call"}})]
        calls.append(ways[index % 4])
    calls.append(lambda: attacker.chat(tools=[tool({"type": "object"}, f"call_{index}")
                                              for index in range(1000)], tool_choice="required"))
    calls.append(lambda: attacker.chat(tools=[tool({"type": "object"}, "x" * 100000)]))
    attacker.all_at_once(calls, 6)


def many_choices(attacker: Attacker) -> None:
    choices = [f"choice number {index} of many" for index in range(100000)]
    judge_at_once(attacker, [lambda: attacker.complete(guided_choice=choices),
                             lambda: attacker.complete(guided_choice=choices[:20000]),
                             lambda: attacker.complete(guided_choice=["a" * 1000000, "a" * 999999 + "b"]),
                             lambda: attacker.complete(guided_choice=[""] * 1000),
                             lambda: attacker.complete(guided_choice=["a" * n for n in range(1, 2000)])], 5)


def structural_tags(attacker: Attacker) -> None:
    for tag in ({"type": "structural_tag", "structures": [{"begin": "<a>", "schema": {"$ref": "#"}, "end": "</a>"}] * 500,
                 "triggers": ["<a>"]},
                {"type": "structural_tag", "format": {"type": "sequence", "elements": [{"type": "any_text"}] * 3000}},
                {"type": "json_object"}, {"type": "json_schema"}, {"type": "grammar", "grammar": RECURSIVE[0]}):
        attacker.chat(response_format=tag)
    deep: dict = {"type": "any_text"}
    for _ in range(50):
        deep = {"type": "tag", "begin": "<a>", "content": deep, "end": "</a>"}
    attacker.chat(response_format={"type": "structural_tag", "format": deep})


def random_grammars(attacker: Attacker) -> None:
    """Of every kind that the server takes; each must be answered."""
    rng = random.Random(11)
    forms = [random_form(rng, kind) for _ in range(attacker.few(100)) for kind in ("grammar", "regex", "json")]
    judge_at_once(attacker, [lambda f=form: attacker.complete(max_tokens=3, **f) for form in forms], 8)


ATTACKS = [
    # Four at once are never too many.
    Attack("grammar_recursive_repeat", grammar_recursive_repeat, JUDGED),
    Attack("regex_nested_stars", regex_nested_stars, JUDGED | PUT_OFF | {"left"}, once=True),
    Attack("schema_many_optionals", schema_many_optionals, JUDGED | PUT_OFF | {"left"}, once=True),
    Attack("tool_schemas", tool_schemas, JUDGED | PUT_OFF | {"left"}, once=True),
    Attack("many_choices", many_choices, JUDGED | PUT_OFF, once=True),
    Attack("structural_tags", structural_tags, JUDGED),
    Attack("random_grammars", random_grammars, JUDGED | PUT_OFF, once=True),
]
