"""Grammars, expressions and schemas drawn from a seed: mostly well formed, often hostile."""

import random


def expression(rng: random.Random, depth: int) -> str:
    """A regular expression."""
    if depth == 0:
        return rng.choice(["a", "[a-z]", "[^x]", ".", r"\d", r"\w", "", "é", r"\.", "[ab c]", "日"])
    kind = rng.randrange(8)
    if kind < 2:
        return expression(rng, depth - 1) + expression(rng, depth - 1)
    if kind < 4:
        return f"({expression(rng, depth - 1)}|{expression(rng, depth - 1)})"
    if kind < 7:
        tail = rng.choice(["*", "+", "?", "*?", "+?", "{2}", "{0,3}", "{1,}", "{40}", "{0,200}"])
        return f"(?:{expression(rng, depth - 1)}){tail}"
    return rng.choice(["(", ")", "[", "(?=a)", r"\b", "^", "$", "(?i)a", r"\1", "{2}", "(?<n>a)", "*"])


def rule_body(rng: random.Random, rules: int, depth: int) -> str:
    """The right side of a rule of a grammar."""
    if depth == 0:
        return rng.choice(['"a"', '"bc "', "[a-z]", "[^\\n]", '""', '"\\u65e5"',
                           *[f"r{rng.randrange(rules)}"] * 3])
    kind = rng.randrange(6)
    if kind < 2:
        return f"{rule_body(rng, rules, depth - 1)} {rule_body(rng, rules, depth - 1)}"
    if kind < 4:
        return f"({rule_body(rng, rules, depth - 1)} | {rule_body(rng, rules, depth - 1)})"
    tail = rng.choice(["*", "+", "?", "{2}", "{0,3}", "{2,}", "{30}"])
    return f"({rule_body(rng, rules, depth - 1)}){tail}"


def grammar(rng: random.Random) -> str:
    rules = rng.randint(1, 6)
    lines = ["root ::= " + rule_body(rng, rules, rng.randint(0, 3))]
    lines += [f"r{index} ::= {rule_body(rng, rules, rng.randint(0, 3))}" for index in range(rules)]
    return "\n".join(lines)


def schema(rng: random.Random, depth: int):
    if depth == 0:
        return rng.choice([{"type": "string"}, {"type": "integer", "minimum": rng.randint(-999, 999)},
                           {"type": "number"}, {"type": "boolean"}, {"type": "null"}, {}, True,
                           {"enum": ["a", 1, None]}, {"const": {"a": [1]}}, {"$ref": "#"},
                           {"type": "string", "pattern": expression(rng, 2)},
                           {"type": "string", "format": rng.choice(["date", "email", "uuid", "none"])},
                           {"type": "string", "minLength": 2, "maxLength": rng.randint(0, 50)}])
    kind = rng.randrange(5)
    if kind < 2:
        names = [rng.choice("abcdefg") * rng.randint(1, 3) for _ in range(rng.randint(0, 6))]
        return {"type": "object", "properties": {name: schema(rng, depth - 1) for name in names},
                "required": rng.sample(names, rng.randint(0, len(names))),
                "additionalProperties": rng.choice([True, False, schema(rng, depth - 1)])}
    if kind == 2:
        return {"type": "array", "items": schema(rng, depth - 1), "minItems": rng.randint(0, 9),
                "maxItems": rng.randint(0, 99)}
    word = "anyOf" if kind == 3 else rng.choice(["allOf", "oneOf"])
    return {word: [schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]}


def random_form(rng: random.Random, kind: str) -> dict:
    """The field of a request that asks for it."""
    if kind == "grammar":
        return {"guided_grammar": grammar(rng)}
    if kind == "regex":
        return {"guided_regex": expression(rng, rng.randint(0, 5))}
    drawn = schema(rng, rng.randint(0, 3))
    return {"guided_json": drawn if isinstance(drawn, dict) else {"anyOf": [drawn]}}
