"""Where an adapter comes from: a path or a repository, tensors, or a model of PEFT."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Union

from .safetensors import safetensors

# A path or ORG/NAME[@REV]; tensors with the configuration of adapter_config.json; or a PeftModel.
AdapterSource = Union[str, "os.PathLike[str]", tuple[Mapping[str, Any], Any], Any]


def is_path(source: AdapterSource) -> bool:
    return isinstance(source, (str, os.PathLike))


def adapter_body(source: Any, config: Any = None) -> list[bytes | memoryview]:
    """The safetensors file that a push sends: of tensors and their configuration, or of a PeftModel."""
    if isinstance(source, tuple) and len(source) == 2 and config is None:
        source, config = source
    if hasattr(source, "peft_config"):
        tensors, found = tensors_of_peft(source)
        config = found if config is None else config
    elif isinstance(source, Mapping):
        tensors = source
    else:
        raise TypeError(f"{type(source).__name__} is no adapter: give a dict of tensors with its config, or a PeftModel")
    if config is None:
        raise TypeError("tensors need the configuration of their adapter: give the content of adapter_config.json as config")
    return safetensors(tensors, {"adapter_config": config_text(config)})


def tensors_of_peft(model: Any) -> tuple[Mapping[str, Any], Any]:
    """Of the adapter of a PeftModel that is active."""
    active = model.active_adapter
    peft = sys.modules["peft"]  # the caller has a model of it
    return peft.get_peft_model_state_dict(model, adapter_name=active), model.peft_config[active]


def config_text(config: Any) -> str:
    """As adapter_config.json has it: of such a text, a dict, or a LoraConfig."""
    if isinstance(config, str):
        return config
    fields = config.to_dict() if hasattr(config, "to_dict") else dict(config)
    return json.dumps(fields, default=listed)


def listed(value: Any) -> Any:
    """Values that JSON does not have: sets are lists."""
    return sorted(value) if isinstance(value, (set, frozenset)) else str(value)
