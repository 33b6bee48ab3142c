"""Schemas as pydantic and zod write them: what comes back is valid by the jsonschema package, or it is said what is not enforced."""

import concurrent.futures
import datetime
import enum
import ipaddress
import json
import re
import typing
import urllib.error
import uuid

import jsonschema
import pydantic
from harness import ClientTest, main

Short = typing.Annotated[str, pydantic.Field(max_length=8)]


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Point(pydantic.BaseModel):
    """A place."""

    model_config = pydantic.ConfigDict(extra="forbid")
    x: typing.Annotated[int, pydantic.Field(ge=-5, le=5)]
    y: typing.Annotated[int, pydantic.Field(gt=0, lt=100, description="up")] = 3


class Cat(pydantic.BaseModel):
    kind: typing.Literal["cat"]
    lives: typing.Annotated[int, pydantic.Field(ge=0, le=9)]


class Dog(pydantic.BaseModel):
    kind: typing.Literal["dog"]
    name: Short


class Everything(pydantic.BaseModel):
    colour: Colour
    place: Point | None
    pets: typing.Annotated[list[typing.Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]],
                           pydantic.Field(min_length=1, max_length=2)]
    pair: tuple[bool, Colour]
    day: datetime.date
    key: uuid.UUID
    maybe: Short | int | None = None


class Tree(pydantic.BaseModel):
    leaf: bool
    below: typing.Annotated[list["Tree"], pydantic.Field(max_length=1)] = []


# As zod's toJSONSchema writes them, and what JSON Schema has beside it.
ZOD = {
    "object": {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
               "properties": {"a": {"type": "string", "minLength": 1, "maxLength": 5},
                              "b": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 99}, {"type": "null"}]}},
               "required": ["a", "b"], "additionalProperties": False},
    "record": {"type": "object", "propertyNames": {"type": "string", "pattern": "^[a-c]{1,2}$"},
               "additionalProperties": {"type": "boolean"}, "maxProperties": 2},
    "tuple": {"type": "array", "prefixItems": [{"type": "boolean"}, {"enum": ["x", "y"]}], "items": False,
              "minItems": 2},
    "literals": {"anyOf": [{"const": 1}, {"const": "one"}, {"type": "null"}]},
    **{name: {"type": "string", "format": name} for name in (
        "date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid")},
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
    "step": {"type": "integer", "minimum": 0, "maximum": 50, "multipleOf": 5},
    "unique": {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 2, "maxItems": 3, "uniqueItems": True},
    "patternProperties": {"type": "object", "patternProperties": {"^n_[a-z]{1,3}$": {"type": "integer", "maximum": 9, "minimum": 0}},
                          "additionalProperties": False, "minProperties": 1, "maxProperties": 2},
    "not": {"enum": ["red", "green", "blue"], "not": {"const": "red"}},
    "all": {"allOf": [{"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]},
                      {"properties": {"b": {"type": "boolean"}}, "required": ["b"]}], "maxProperties": 2},
    "one": {"oneOf": [{"type": "integer", "minimum": 0, "maximum": 3}, {"type": "boolean"}]},
    "bounds": {"type": "integer", "exclusiveMinimum": 10, "exclusiveMaximum": 21},
    "open object": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "maxProperties": 2,
                    "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 9}},
    "nested": {"type": "array", "minItems": 1, "maxItems": 2,
               "items": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "boolean"}}},
}


# Nothing in these bounds a text (the name of a further property): where the model draws a long one, the answer is cut.
OPEN_TEXT = {"open object"}


class Formats(pydantic.BaseModel):
    """The types of pydantic's whose texts have a form and an end."""

    day: datetime.date
    moment: datetime.datetime
    hour: datetime.time
    span: datetime.timedelta
    four: ipaddress.IPv4Address
    six: ipaddress.IPv6Address
    key: uuid.UUID
    random: pydantic.UUID4


def is_email(text):
    """What validators of addresses agree on: dots between words, labels of a domain, and how long each may be."""
    found = re.fullmatch(r"([\w+'-]+(?:\.[\w+'-]+)*)@((?:[a-z\d]+(?:-[a-z\d]+)*\.)+[a-z]{2,})", text,
                         re.ASCII | re.IGNORECASE)
    return bool(found) and len(text) <= 254 and len(found[1]) <= 64 and max(map(len, found[2].split("."))) <= 63


# By Python's own parsers: what jsonschema has for these depends on what else is installed.
FORMATS = jsonschema.FormatChecker(("uuid",))
for name, read in {"date": datetime.date.fromisoformat, "date-time": datetime.datetime.fromisoformat,
                   "duration": pydantic.TypeAdapter(datetime.timedelta).validate_python,
                   "ipv4": ipaddress.IPv4Address, "ipv6": ipaddress.IPv6Address,
                   "time": datetime.time.fromisoformat}.items():
    FORMATS.checks(name, raises=ValueError)(lambda text, read=read: read(text) is not None)
FORMATS.checks("email")(is_email)
PYDANTIC = {model.__name__: model.model_json_schema() for model in (Point, Everything, Tree, Formats)}


class Schemas(ClientTest):
    def ask(self, schema, temperature, seed, strict=False, max_tokens=400):
        """The answer's text, why it ended, and the keywords that were named as not enforced."""
        answer, headers = self.server.post_with_headers("/v1/chat/completions", {
            "model": "demo", "messages": [{"role": "user", "content": "wisdom"}], "temperature": temperature,
            "seed": seed, "max_tokens": max_tokens, "response_format": {"type": "json_schema", "json_schema": {
                "name": "answer", "strict": strict, "schema": schema}}})
        choice = answer["choices"][0]
        return choice["message"]["content"], choice["finish_reason"], headers.get("x-motley-unenforced", "")

    def check(self, name, schema):
        wrong = []
        for seed, temperature in enumerate((0, 0.6, 1)):
            text, reason, unenforced = self.ask(schema, temperature, seed)
            if reason == "length" and name in OPEN_TEXT and temperature > 0:
                continue
            try:
                if reason != "stop":
                    raise ValueError(f"ended by {reason}")
                value = json.loads(text)
                if not unenforced:
                    jsonschema.validate(value, schema, jsonschema.Draft202012Validator, format_checker=FORMATS)
            except (ValueError, jsonschema.ValidationError) as error:
                wrong.append(f"{name}, temperature {temperature}: {str(error).splitlines()[0]}: {text!r}")
        return wrong

    def test_answers_are_valid(self):
        schemas = PYDANTIC | ZOD
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            wrong = [line for lines in pool.map(self.check, schemas, schemas.values()) for line in lines]
        self.assertFalse(wrong, "\n".join(wrong))

    def test_pydantic_reads_every_format(self):
        for seed, temperature in enumerate((0, 0.7, 1, 1.5)):
            text, reason, unenforced = self.ask(Formats.model_json_schema(), temperature, seed, strict=True)
            self.assertEqual((reason, unenforced), ("stop", ""), text)
            Formats.model_validate_json(text)

    def test_what_is_not_enforced_is_named_and_refused_where_it_is_strict(self):
        schema = {"type": "string", "format": "email", "maxLength": 20}
        *_, unenforced = self.ask(schema, 0, 0, max_tokens=8)
        self.assertIn("maxLength", unenforced)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.ask(schema, 0, 0, strict=True, max_tokens=8)
        self.assertEqual(refused.exception.code, 400)
        self.assertIn("maxLength", refused.exception.read().decode())


if __name__ == "__main__":
    main()
