"""Parts of the package without a server of motley's: tensors, prompts, options, HTTP, many calls at once."""

import asyncio
import json
import math
import sys
import types
import unittest

import ml_dtypes
import numpy as np
from harness import main, read_tensors

from motley.adapters import adapter_body, config_text
from motley.address import Address
from motley.client import Client, adapter_path
from motley.errors import MotleyError, RequestError
from motley.in_order import in_order
from motley.prompts import adapter_fields, one_each, read_conversations, read_prompts
from motley.safetensors import safetensors as write
from motley.sampling import SamplingParams
from motley.server_process import option_words

CONFIG = {"peft_type": "LORA", "r": 2, "target_modules": {"q_proj"}}


def joined(tensors, metadata=None) -> bytes:
    return b"".join(write(tensors, metadata or {}))


class FakeTensor:
    """What torch's tensors have of it. `step` 2: every second number, which is not contiguous."""

    def __init__(self, array: np.ndarray, name: str, step: int = 1):
        self.array, self.dtype, self.step = array, f"torch.{name}", step
        self.shape = array[::step].shape

    def detach(self):
        return self

    cpu = detach

    def contiguous(self):
        return self if self.step == 1 else FakeTensor(self.array[::self.step].copy(), self.dtype.removeprefix("torch."))

    def numel(self):
        return math.prod(self.shape)

    def element_size(self):
        return self.array.itemsize

    def data_ptr(self):
        return self.array.ctypes.data


class Tensors(unittest.TestCase):
    def test_numbers_of_numpy_are_read_by_the_formats_own_library(self):
        numbers = np.arange(12).reshape(3, 4)
        tensors = {f"t.{name}": numbers.astype(name)
                   for name in ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")}
        tensors["bf16"] = numbers.astype(ml_dtypes.bfloat16)
        tensors["transposed"] = np.arange(6, dtype=np.float32).reshape(2, 3).T
        tensors["strided"] = np.arange(9, dtype=np.float32)[::2]
        tensors["scalar"] = np.float32(3).reshape(())
        tensors["empty"] = np.zeros((0, 5), np.float16)
        read = read_tensors(joined(tensors))
        self.assertEqual(read.keys(), tensors.keys())
        for name, tensor in tensors.items():
            self.assertEqual(read[name].dtype, tensor.dtype, name)
            np.testing.assert_array_equal(read[name], tensor, name)

    def test_numbers_of_the_other_byte_order_are_turned(self):
        numbers = np.arange(5, dtype=">f4")
        np.testing.assert_array_equal(read_tensors(joined({"a": numbers}))["a"], numbers)

    def test_tensors_of_torch_are_read_without_importing_it(self):
        bits = np.arange(8).astype(ml_dtypes.bfloat16)
        sys.modules["torch"] = types.SimpleNamespace(Tensor=FakeTensor)
        self.addCleanup(sys.modules.pop, "torch")
        read = read_tensors(joined({
            "whole": FakeTensor(bits, "bfloat16"), "strided": FakeTensor(bits, "bfloat16", 2),
            "empty": FakeTensor(bits[:0], "bfloat16")}))
        np.testing.assert_array_equal(read["whole"], bits)
        np.testing.assert_array_equal(read["strided"], bits[::2])
        self.assertEqual(read["empty"].shape, (0,))

    def test_what_is_no_tensor_is_named(self):
        for wrong in ([1.0], np.zeros(2, np.complex64), np.array(["a"])):
            with self.assertRaisesRegex(TypeError, "tensor a.b: .* can't be sent"):
                joined({"a.b": wrong})

    def test_the_configuration_travels_with_the_tensors(self):
        body = b"".join(adapter_body({"a": np.zeros(2, np.float32)}, CONFIG))
        header = json.loads(body[8:8 + int.from_bytes(body[:8], "little")])
        self.assertEqual(json.loads(header["__metadata__"]["adapter_config"]), CONFIG | {"target_modules": ["q_proj"]})
        self.assertEqual(config_text(types.SimpleNamespace(to_dict=lambda: CONFIG)), config_text(CONFIG))
        with self.assertRaisesRegex(TypeError, "need the configuration"):
            adapter_body({"a": np.zeros(2, np.float32)})
        with self.assertRaisesRegex(TypeError, "list is no adapter"):
            adapter_body([], CONFIG)

    def test_a_model_of_peft_gives_its_active_adapter(self):
        model = types.SimpleNamespace(active_adapter="mine", peft_config={"mine": CONFIG, "other": {}})
        sys.modules["peft"] = types.SimpleNamespace(
            get_peft_model_state_dict=lambda which, adapter_name: {adapter_name: np.ones(3, np.float32)})
        self.addCleanup(sys.modules.pop, "peft")
        self.assertEqual(list(read_tensors(b"".join(adapter_body(model)))), ["mine"])


class Requests(unittest.TestCase):
    def test_prompts_are_texts_ids_and_dicts_alone_or_listed(self):
        def read(prompts):
            return [(each.text, each.token_ids) for each in read_prompts(prompts)]
        self.assertEqual(read("a"), [("a", None)])
        self.assertEqual(read([1, 2]), [(None, [1, 2])])
        self.assertEqual(read(np.array([1, 2])), [(None, [1, 2])])
        self.assertEqual(read([[1, 2], "a", {"prompt_token_ids": (3,), "prompt": "c"}, {"prompt": "d"}]),
                         [(None, [1, 2]), ("a", None), ("c", [3]), ("d", None)])
        self.assertEqual(read([]), [])
        for wrong in ([[1.5]], [{"text": "a"}], [[True]]):
            with self.assertRaises(TypeError):
                read(wrong)

    def test_conversations_are_one_or_several(self):
        hello = {"role": "user", "content": "hello"}
        self.assertEqual(read_conversations([hello]), [[hello]])
        self.assertEqual(read_conversations([[hello], [hello, hello]]), [[hello], [hello, hello]])

    def test_a_list_has_a_value_for_each_prompt(self):
        self.assertEqual(one_each("poet", 2, "adapters"), ["poet", "poet"])
        self.assertEqual(one_each(["poet", None], 2, "adapters"), ["poet", None])
        with self.assertRaisesRegex(ValueError, "1 adapters for 2 prompts"):
            one_each(["poet"], 2, "adapters")

    def test_adapters_are_named_or_mixed(self):
        self.assertEqual(adapter_fields(None), {})
        self.assertEqual(adapter_fields("poet"), {"model": "poet"})
        self.assertEqual(adapter_fields({"a": 0.5, "b": 1}),
                         {"adapters": [{"name": "a", "scale": 0.5}, {"name": "b", "scale": 1}]})

    def test_parameters_that_are_not_given_are_left_out(self):
        fields = SamplingParams(logit_bias={7: 1.0}, max_tokens=None, logprobs=2, extra={"priority": 1}).fields()
        self.assertEqual((fields["logit_bias"], fields["priority"], fields["temperature"]), ({"7": 1.0}, 1, 1.0))
        self.assertFalse({"max_tokens", "logprobs", "seed", "stop", "extra"} & fields.keys())

    def test_keywords_are_options_of_the_command_line(self):
        self.assertEqual(option_words({"kv_memory": "4G", "tp": 2, "no_graphs": True, "name": None, "strict_fields": False,
                                       "trusted_proxies": ["a", "b"]}),
                         ["--kv-memory", "4G", "--tp", "2", "--no-graphs", "--trusted-proxies", "a", "--trusted-proxies", "b"])

    def test_names_of_adapters_are_escaped_in_paths(self):
        self.assertEqual(adapter_path("a/b@1:c d"), "/v1/adapters/a/b%401%3Ac%20d")
        self.assertEqual(adapter_path("a", {"version": "x y", "pinned": True, "on_replace": None}),
                         "/v1/adapters/a?version=x+y&pinned=true")

    def test_addresses(self):
        self.assertEqual(str(Address.parse("http://host:8000/v1/")), "http://host:8000")
        self.assertEqual(str(Address.parse("https://host/proxy")), "https://host/proxy")
        self.assertEqual(Address.parse("http://[::1]:80").authority, "[::1]")
        self.assertEqual(Address.parse("unix:///run/s").path, Address.parse("unix:/run/s").path)
        for wrong in ("host:8000", "ftp://host", "unix://run/s", "http://"):
            with self.assertRaises(ValueError, msg=wrong):
                Address.parse(wrong)


class Scripted:
    """A server that answers each request with the next text, and keeps what it was sent."""

    def __init__(self, *answers: str, body: bool = True):
        self.answers, self.reads_body, self.requests, self.connections = list(answers), body, [], 0

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.client = Client(Address.parse(f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"), key="k",
                             connections=4)
        return self

    async def __aexit__(self, *error):
        self.client.close()
        self.server.close()

    async def serve(self, reader, writer):
        self.connections += 1
        try:
            while self.answers:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int((head.lower() + "content-length: 0\r\n").split("content-length: ")[1].split("\r\n")[0])
                if self.reads_body and "expect:" not in head.lower():
                    await reader.readexactly(length)
                self.requests.append(head)
                writer.write(self.answers.pop(0).replace("\n", "\r\n").encode())
                await writer.drain()
            while not self.reads_body and await reader.read(65536):
                pass  # a close would break the answer off
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


class Http(unittest.IsolatedAsyncioTestCase):
    async def test_connections_are_kept_whatever_form_a_body_has(self):
        async with Scripted("HTTP/1.1 200 OK\nContent-Length: 2\n\n[]",
                            "HTTP/1.1 100 Continue\n\nHTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n1;x=y\n[\n1\n]\n0\nT: t\n\n",
                            "HTTP/1.1 200 OK\nContent-Length: 0\n\n") as server:
            self.assertEqual(await server.client.get("/a"), [])
            self.assertEqual(await server.client.post("/b", {}), [])
            self.assertIsNone(await server.client.get("/c"))
            self.assertEqual(server.connections, 1)
            self.assertIn("Authorization: Bearer k", server.requests[0])

    async def test_an_error_has_the_servers_words(self):
        body = '{"error": {"message": "no such thing", "param": "p", "code": "c"}}'
        async with Scripted(f"HTTP/1.1 404 Not Found\nContent-Length: {len(body)}\n\n{body}",
                            "HTTP/1.1 502 Bad Gateway\nContent-Length: 5\n\nsorry") as server:
            with self.assertRaises(RequestError) as caught:
                await server.client.get("/")
            error = caught.exception
            self.assertEqual((error.status, error.message, error.param, error.code), (404, "no such thing", "p", "c"))
            with self.assertRaisesRegex(RequestError, r"sorry \(status 502\)"):
                await server.client.get("/")

    async def test_a_server_that_is_busy_is_asked_again(self):
        async with Scripted("HTTP/1.1 429 Busy\nRetry-After: 0\nContent-Length: 2\n\n{}",
                            "HTTP/1.1 200 OK\nContent-Length: 1\n\n1") as server:
            self.assertEqual(await server.client.post("/", {}), 1)

    async def test_a_body_waits_for_leave_and_is_not_sent_without_it(self):
        async with Scripted("HTTP/1.1 409 Conflict\nContent-Length: 2\n\n{}") as server:
            with self.assertRaisesRegex(RequestError, "409"):
                await server.client.ask("PUT", "/", [b"x" * 1000], expects=True)
            self.assertIn("Expect: 100-continue", server.requests[0])
            self.assertIn("Content-Length: 1000", server.requests[0])

    async def test_an_answer_may_come_before_the_body_has_been_sent(self):
        large = memoryview(bytes(32 * 1024 * 1024))
        async with Scripted("HTTP/1.1 413 Too Large\nContent-Length: 2\n\n{}", body=False) as server:
            with self.assertRaisesRegex(RequestError, "413"):
                await server.client.ask("PUT", "/", [large])

    async def test_broken_answers_are_errors(self):
        for answer in ("", "SSH-2.0\n\n", "HTTP/1.1 200 OK\nContent-Length: 9\n\nshort",
                       "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n5\nab"):
            async with Scripted(answer) as server:
                with self.assertRaises(MotleyError, msg=answer):
                    await server.client.get("/")

    async def test_a_stream_is_events_up_to_its_end(self):
        head = "HTTP/1.1 200 OK\nConnection: close\n\n"
        async with Scripted(head + 'data: {"a": 1}\n\n: comment\n\ndata: {"a": 2}\n\ndata: [DONE]\n\n') as server:
            self.assertEqual([event async for event in server.client.stream("/", {})], [{"a": 1}, {"a": 2}])
        for broken in ('data: {"a": 1}\n\n', 'data: {"error": {"message": "failed"}}\n\n'):
            async with Scripted(head + broken) as server:
                with self.assertRaises(MotleyError):
                    [event async for event in server.client.stream("/", {})]

    async def test_what_can_not_be_reached_is_named(self):
        client = Client(Address.parse("unix:/nowhere/socket"), key=None, connections=1)
        with self.assertRaisesRegex(MotleyError, "can't connect to unix:/nowhere/socket"):
            await client.get("/")


class Many(unittest.IsolatedAsyncioTestCase):
    async def test_results_are_in_order_and_calls_are_bounded(self):
        running, most = 0, 0

        async def call(number):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return number

        calls = [lambda number=number: call(number) for number in range(20)]
        self.assertEqual(await in_order(calls, 4), list(range(20)))
        self.assertEqual(most, 4)
        self.assertEqual(await in_order([], 4), [])

    async def test_a_failure_is_named_and_ends_the_others(self):
        ended = []

        async def waits():
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)

        async def fails():
            raise RequestError(400, "wrong")

        with self.assertRaises(RequestError) as caught:
            await in_order([waits, fails], 2)
        self.assertEqual((caught.exception.index, ended), (1, [True]))
        with self.assertRaises(RequestError) as caught:
            await in_order([fails], 2)
        self.assertIsNone(caught.exception.index)


if __name__ == "__main__":
    main()
