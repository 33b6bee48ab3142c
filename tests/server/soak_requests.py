"""Requests of the soak that have one right answer each, and what is compared of their answers."""

import random
from dataclasses import dataclass, field

# Adapters of all kinds: on attention, experts, embeddings, the head; ragged, shared, rsLoRA.
ADAPTERS = ["attention", "all_linear", "experts", "shared_outer", "rslora", "lm_head",
            "ragged_per_expert", "gate_only", "down_only", "router", "embeddings", "experts_rank_1"]
ALONE_ONLY = ["dora", "lora_bias", "modules_to_save"]
# Names whose content goes to and fro: requests that run end with what they began with, or go on with the new one.
REPLACED, SWITCHED = "late", "switched"
CONTENTS = {REPLACED: ["v4_fused", "up_only"], SWITCHED: ["all_linear", "experts"]}
WORDS = "the rain in spain stays mainly on a plain of hills and old stones near some sea".split()
LETTERS = 94  # ids of the tokens that are one letter

COMPLETIONS, CHATS, GENERATE = "/v1/completions", "/v1/chat/completions", "/inference/v1/generate"
SAMPLING = ("temperature", "max_tokens", "seed", "top_p", "top_k", "n", "frequency_penalty", "repetition_penalty", "stop",
            "min_tokens", "logprobs")


@dataclass
class Asked:
    path: str
    body: dict

    def names(self) -> list[str]:
        """The adapters that it names; or the base."""
        return [self.body["model"]] + [each["name"] for each in self.body.get("adapters", [])]

    def contents(self) -> list[str]:
        """Those that its adapter may have; the name of none if that does not change."""
        return CONTENTS.get(self.body["model"], [""])

    def choices(self) -> int:
        return self.body.get("sampling_params", self.body).get("n", 1)


def request(rng: random.Random, index: int) -> Asked:
    body = completion(rng, index)
    way = rng.randrange(4)
    if body["model"] == SWITCHED or way == 1:  # whose answers say which version made which tokens
        return Asked(GENERATE, tokens_of(rng, body))
    return Asked(CHATS, chat_of(body)) if way == 2 else Asked(COMPLETIONS, body)


def completion(rng: random.Random, index: int) -> dict:
    most = rng.randint(40, 90) if index % 16 == 0 else rng.randint(1, 12)
    body = {"model": "tiny", "temperature": 0, "max_tokens": most,
            "prompt": " ".join(rng.choices(WORDS, k=rng.choice((1, 3, 6, 12, 40))))}
    kind = rng.randrange(7)
    if kind == 1:
        body["model"] = rng.choice(ADAPTERS + ALONE_ONLY)
    elif kind == 2:
        body["adapters"] = [{"name": rng.choice(ADAPTERS), "scale": rng.choice((0.5, 2.0))}]
    elif kind == 3:
        body["adapters"] = [{"name": name, "scale": 0.5} for name in rng.sample(ADAPTERS, 2)]
    elif kind == 4:
        body["model"] = REPLACED
    elif kind == 5:
        # Long enough for a replacement in its middle.
        body |= {"model": SWITCHED, "max_tokens": rng.randint(20, 90)}
    way = rng.randrange(8)
    if way == 1:
        body |= {"temperature": 0.9, "seed": index, "top_p": 0.9}
    elif way == 2:
        body |= {"temperature": 1, "seed": index, "top_k": 20, "n": 3, "frequency_penalty": 0.5,
                 "repetition_penalty": 1.1}
    elif way == 3:
        body |= {"stop": ["ea", "n"], "min_tokens": 1}
    elif way == 4:
        body |= {"guided_regex": "[a-f]{3,9}", "seed": index, "temperature": 1}
    elif way == 5:
        body |= {"echo": True, "max_tokens": rng.randint(0, 3)}
    if rng.randrange(2):
        body["logprobs"] = 2
    return body


def chat_of(body: dict) -> dict:
    chat = {name: value for name, value in body.items() if name not in ("prompt", "echo", "logprobs")}
    chat |= {"messages": [{"role": "user", "content": body["prompt"]}], "max_tokens": max(1, body["max_tokens"])}
    return chat | ({"logprobs": True, "top_logprobs": 2} if "logprobs" in body else {})


def tokens_of(rng: random.Random, body: dict) -> dict:
    ids = [rng.randrange(LETTERS) for _ in range(rng.choice((1, 5, 20, 70)))]
    asked = {name: body[name] for name in ("model", "adapters") if name in body}
    return asked | {"token_ids": ids, "sampling_params": {name: body[name] for name in SAMPLING if name in body}}


@dataclass
class Choice:
    """What has come of one choice."""
    text: str = ""
    finish: str | None = None
    tokens: list = field(default_factory=list)
    logprobs: list = field(default_factory=list)
    spans: list = field(default_factory=list)  # which version made which tokens

    def add(self, part: dict) -> None:
        """A whole choice, or the next piece of it."""
        said = part.get("message") or part.get("delta") or part
        self.text += said.get("text") or said.get("content") or ""
        self.finish = part.get("finish_reason") or self.finish
        self.spans = part.get("weight_versions") or self.spans
        scores = part.get("logprobs") or {}
        content = scores.get("content") or []
        self.tokens += part.get("token_ids") or scores.get("tokens") or [each["token"] for each in content]
        self.logprobs += scores.get("token_logprobs") or [each["logprob"] for each in content]

    def begins(self, whole: "Choice", tolerance: float) -> bool:
        """Whether it is the beginning of this one."""
        count = len(self.tokens)
        return (self.tokens == whole.tokens[:count] and whole.text.startswith(self.text.rstrip("\ufffd"))
                and alike(self.logprobs, whole.logprobs[:len(self.logprobs)], tolerance))

    def equals(self, other: "Choice", tolerance: float) -> bool:
        return ((self.text, self.finish, self.tokens) == (other.text, other.finish, other.tokens)
                and alike(self.logprobs, other.logprobs, tolerance))

    def wrong_spans(self, versions: list[str]) -> str:
        """What is wrong with them, of an answer in tokens; empty if nothing is."""
        ends = [0] + [span["end"] for span in self.spans]
        if [span["start"] for span in self.spans] != ends[:-1] or ends != sorted(ends):
            return "spans do not follow each other"
        if self.finish != "abort" and ends[-1] != len(self.tokens):
            return f"spans end at {ends[-1]} of {len(self.tokens)} tokens"
        unknown = {span["version"] for span in self.spans} - set(versions)
        return f"spans of {unknown}, which the answer does not name" if unknown else ""


def alike(got: list, wanted: list, tolerance: float) -> bool:
    def same(one, other) -> bool:
        return one == other if tolerance == 0 or one is None or other is None else abs(one - other) <= tolerance
    return len(got) == len(wanted) and all(same(*pair) for pair in zip(got, wanted))


class Answer:
    """What has come for one request: a status, and the choices or an error."""

    def __init__(self, status: int, choices: int):
        self.status, self.error, self.version = status, None, None
        self.choices = [Choice() for _ in range(choices)]

    def add(self, body: dict) -> None:
        """A whole answer, or an event of a stream."""
        self.error = body.get("error") or self.error
        self.version = body.get("adapter_version") or self.version
        for part in body.get("choices", []):
            self.choices[part["index"]].add(part)

    def versions(self) -> list[str]:
        return self.version.split(",") if self.version else []

    def __repr__(self) -> str:
        return f"{self.status} {self.error or ''} {self.version} {self.choices}"
