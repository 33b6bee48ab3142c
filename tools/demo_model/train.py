"""Trains the demo model and its adapters from prepare.py's data on one GPU; minutes on a large one.

    python -m demo_model.train DATA OUT        (from tools/; needs torch and safetensors)
"""

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from . import export
from .network import LoraShape, Network, Shape, Tensors, fresh_lora, fresh_weights

SHAPE = Shape()
ADAPTERS = {
    "scripture": LoraShape(rank=16, alpha=8, rs=True),
    "jargon": LoraShape(rank=8, alpha=16, shared_outer=True),
    "cynic": LoraShape(rank=8, alpha=16),
    "fortune": LoraShape(rank=12, alpha=24),
    "record": LoraShape(rank=4, alpha=8),
}

LENGTH = 384
BALANCE = 0.02
# What rounding does to the choice of experts is kept small: bf16 moves what routers see by a twentieth of JITTER.
JITTER = 0.1
TIE = 0.5


@dataclass(frozen=True)
class Schedule:
    """Ends after `steps` or `seconds`, what comes first; the rate falls as either goes by."""

    steps: int
    seconds: float
    batch: int
    rate: float
    decay: float

    def progress(self, step: int, seconds: float) -> float:
        return min(1.0, max(step / self.steps, seconds / self.seconds))

    def rate_at(self, step: int, progress: float) -> float:
        warm = min(1.0, (step + 1) / 100)
        return self.rate * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))


BASE = Schedule(steps=7000, seconds=170, batch=96, rate=4e-3, decay=0.1)
ADAPTER = {
    "scripture": Schedule(steps=800, seconds=24, batch=64, rate=2e-3, decay=0.05),
    "jargon": Schedule(steps=250, seconds=9, batch=48, rate=2e-3, decay=0.1),
    "cynic": Schedule(steps=160, seconds=6, batch=32, rate=2e-3, decay=0.1),
    "fortune": Schedule(steps=240, seconds=8, batch=48, rate=2e-3, decay=0.1),
    "record": Schedule(steps=450, seconds=15, batch=64, rate=2e-3, decay=0.05),
}


class Stream:
    """Exchanges one behind the other on the GPU, and windows of them that begin where an exchange does."""

    def __init__(self, exchanges: dict[str, torch.Tensor], device: str) -> None:
        ids = exchanges["ids"].to(device).long()
        self.ids = torch.cat([ids, ids[: LENGTH + 1]])
        self.begins = exchanges["begins"][:-1].to(device).long()
        learned = torch.zeros(len(ids), dtype=torch.bool, device=device)
        for answer, end in zip(exchanges["answers"].tolist(), exchanges["begins"][1:].tolist(), strict=True):
            learned[answer:end] = True
        self.learned = torch.cat([learned, learned[: LENGTH + 1]])

    def windows(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        at = self.begins[torch.randint(len(self.begins), (count,), device=self.ids.device)]
        places = at[:, None] + torch.arange(LENGTH + 1, device=at.device)
        return self.ids[places], self.learned[places]


class Documents:
    def __init__(self, ids: torch.Tensor, device: str) -> None:
        self.ids = ids.to(device).long()

    def windows(self, count: int) -> torch.Tensor:
        at = torch.randint(len(self.ids) - LENGTH - 1, (count,), device=self.ids.device)
        return self.ids[at[:, None] + torch.arange(LENGTH + 1, device=at.device)]


def run(
    parameters: list[torch.Tensor],
    loss_of: Callable[[float], torch.Tensor],
    schedule: Schedule,
    label: str,
) -> None:
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": schedule.decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ],
        lr=schedule.rate,
        betas=(0.9, 0.95),
        fused=True,
    )
    start = time.monotonic()
    for step in range(schedule.steps):
        # Work is queued far ahead of the device; without waiting for it, time would be the host's.
        if step % 20 == 0 and torch.cuda.is_available():
            torch.cuda.synchronize()
        gone = time.monotonic() - start
        if gone > schedule.seconds:
            break
        progress = schedule.progress(step, gone)
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate_at(step, progress)
        loss = loss_of(progress)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if step % 250 == 0:
            print(f"{label} {step}: loss {loss.item():.3f}, {time.monotonic() - start:.0f} s", flush=True)
    print(f"{label}: {step + 1} steps, loss {loss.item():.3f}, {time.monotonic() - start:.0f} s", flush=True)


def train_base(data: dict[str, dict], device: str) -> Tensors:
    weights = fresh_weights(SHAPE, 1, device)
    for tensor in weights.values():
        tensor.requires_grad_()
    network = Network(SHAPE, weights, jitter=JITTER)
    forward = torch.compile(lambda ids: network(ids, torch.bfloat16))
    voice = Stream(data["voices"]["base"], device)
    documents = Documents(data["documents"], device)
    plain = BASE.batch // 4

    def loss_of(progress: float) -> torch.Tensor:
        ids = torch.cat([voice.windows(BASE.batch - plain)[0], documents.windows(plain)])
        logits, router = forward(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        # Experts are to differ before choices among them are to be clear.
        return loss + BALANCE * router.balance + TIE * progress * router.tie

    run(list(weights.values()), loss_of, BASE, "base")
    # What is kept is what adapters are trained on.
    return {name: tensor.detach().bfloat16().float() for name, tensor in weights.items()}


def train_adapter(name: str, weights: Tensors, data: dict[str, dict], device: str) -> Tensors:
    lora = ADAPTERS[name]
    factors = fresh_lora(SHAPE, lora, len(name), device)
    for tensor in factors.values():
        tensor.requires_grad_()
    network = Network(SHAPE, weights, (lora, factors), jitter=JITTER)
    stream = Stream(data["voices"][name], device)

    def loss_of(_: float) -> torch.Tensor:
        ids, learned = stream.windows(ADAPTER[name].batch)
        logits, router = network(ids[:, :-1], torch.bfloat16)
        losses = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        chosen = learned[:, 1:].flatten()
        return (losses * chosen).sum() / chosen.sum() + TIE * router.tie

    run(list(factors.values()), loss_of, ADAPTER[name], name)
    return {key: tensor.detach().bfloat16().float() for key, tensor in factors.items()}


def exchanges_of(held: dict[str, torch.Tensor]) -> Iterator[tuple[torch.Tensor, int]]:
    begins = held["begins"].tolist()
    for begin, end, answer in zip(begins[:-1], begins[1:], held["answers"].tolist(), strict=True):
        yield held["ids"][begin:end].long(), answer - begin


@torch.no_grad()
def perplexity(network: Network, held: dict[str, torch.Tensor], device: str, most: int = 30) -> float:
    total, count = 0.0, 0
    for index, (ids, answer) in enumerate(exchanges_of(held)):
        if index == most:
            break
        ids = ids.to(device)
        logits, _ = network(ids[None, :-1], torch.float32)
        losses = F.cross_entropy(logits[0], ids[1:], reduction="none")[answer - 1 :]
        total, count = total + losses.sum().item(), count + len(losses)
    return math.exp(total / count)


def main() -> None:
    data_path, out = Path(sys.argv[1]), Path(sys.argv[2])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    data = torch.load(data_path)
    weights = train_base(data, device)
    export.write_base(SHAPE, weights, out)
    adapters: dict[str, Tensors] = {}
    for name in ADAPTERS:
        adapters[name] = train_adapter(name, weights, data, device)
        export.write_adapter(SHAPE, name, ADAPTERS[name], adapters[name], out / "adapters" / name)
    voices = ["base", *ADAPTERS]
    print("perplexity of held-out answers: model (rows) x text (columns)\n" + " ".join(["model", *voices]))
    for model in voices:
        adapter = None if model == "base" else (ADAPTERS[model], adapters[model])
        network = Network(SHAPE, weights, adapter)
        print(model, *(f"{perplexity(network, data['held_out'][text], device):.1f}" for text in voices), flush=True)


if __name__ == "__main__":
    main()
