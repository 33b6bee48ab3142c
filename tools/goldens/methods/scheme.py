"""What a method of quantising says of a checkpoint."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

Parts = dict[str, torch.Tensor]

# In one document or several, by file name: what stands beside config.json.
Documents = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Rounding:
    """How a module's inputs are rounded before its product, where the file asks for it."""

    by: Literal["fixed", "row", "row_block"]
    integers: bool
    columns: int = 0  # of a block
    power_of_two: bool = False
    scale: float = 0.0  # of fixed
    zero: int = 0  # of fixed integers


@dataclass(frozen=True)
class Scheme:
    """Packs weights and says what the packed ones mean."""

    method: ClassVar[str]

    @property
    def static_inputs(self) -> bool:
        """Whether input_parts wants the range of a module's inputs."""
        return False

    def config(self) -> dict[str, Any]:
        """The quantization_config, wherever the checkpoint keeps it."""
        raise NotImplementedError

    def documents(self) -> Documents:
        """Files that hold it instead of config.json."""
        return {}

    def pack(self, module: str, weight: torch.Tensor) -> Parts | None:
        """The tensors that stand for a weight [out, in] in float32; None where it stays plain."""
        raise NotImplementedError

    def meaning(self, module: str, parts: Parts) -> torch.Tensor:
        """The weight that they stand for, in float32."""
        raise NotImplementedError

    def compare_with_library(self, module: str, parts: Parts, meaning: torch.Tensor) -> None:
        """Raises if a library that can decode exactly says something else."""

    def input_parts(self, module: str, low: float, high: float) -> Parts:
        """What a module's file says of its inputs, which were seen in that range."""
        return {}

    def rounding(self, module: str, parts: Parts) -> Rounding | None:
        """What happens to the module's inputs."""
        return None

    def takes(self, name: str, tensor: torch.Tensor) -> bool:
        """Whether a tensor of the plain checkpoint is offered to pack(). A vision tower's are not."""
        if ".visual." in name or name.endswith("embed_tokens.weight"):
            return False
        return tensor.dim() == 2 and name.endswith(".weight")

    def stored_name(self, module: str, part: str) -> str:
        return f"{module}.{part}"

    def renamed(self, name: str) -> str:
        """The name in the stored checkpoint."""
        return name


def per_group(weight: torch.Tensor, group: int) -> torch.Tensor:
    """[out, in] as [out, groups, in of a group]."""
    return weight.view(weight.shape[0], -1, group)


def spread(values: torch.Tensor, columns: int) -> torch.Tensor:
    """One value for each group of a row, as one for each column."""
    return values.repeat_interleave(columns // values.shape[1], dim=1)


def spread_blocks(values: torch.Tensor, shape: torch.Size, block: tuple[int, int]) -> torch.Tensor:
    """One value for each block of a matrix, as one for each element; the blocks at the edges are partial."""
    rows, columns = torch.arange(shape[0]) // block[0], torch.arange(shape[1]) // block[1]
    return values.float()[rows[:, None], columns[None, :]]


def largest_of_blocks(weight: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """The largest magnitude of each block."""
    rows, columns = block
    grid = [-(-weight.shape[0] // rows), -(-weight.shape[1] // columns)]
    largest = torch.empty(grid)
    for i in range(grid[0]):
        for j in range(grid[1]):
            largest[i, j] = weight[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns].abs().max()
    return largest
