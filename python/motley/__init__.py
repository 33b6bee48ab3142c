"""Mixture-of-Experts language models with many LoRA adapters, from Python.

    import motley

    with motley.LLM("models/demo", adapters={"poet": "adapters/poet"}) as llm:
        for output in llm.generate(["The sea", "Money"], motley.SamplingParams(max_tokens=32), adapter="poet"):
            print(output.outputs[0].text)

The guide is docs/guide/python.md.
"""

from .async_llm import AsyncLLM
from .errors import MotleyError, RequestError, StartError
from .llm import LLM
from .results import AdapterInfo, CompletionOutput, Logprob, RequestOutput, ScoreOutput
from .sampling import SamplingParams

__all__ = ["LLM", "AdapterInfo", "AsyncLLM", "CompletionOutput", "Logprob", "MotleyError", "RequestError", "RequestOutput",
           "SamplingParams", "ScoreOutput", "StartError"]
