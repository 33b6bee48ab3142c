"""Models and adapters by the names of their repositories, in caches that huggingface_hub fills.

names_test.py MOTLEY MODEL: the model's folder has adapters/cynic.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "server"))

from hub_server import Hub  # noqa: E402
from server_process import ServerProcess  # noqa: E402

MOTLEY, MODEL = (Path(sys.argv.pop(1)).resolve() for _ in range(2))
FOLDER = tempfile.TemporaryDirectory()
HOME = Path(FOLDER.name).resolve() / "hf"
HUB = Hub()

# Before the library is read: it looks at the environment then.
os.environ |= {"HF_ENDPOINT": HUB.url, "HF_HOME": str(HOME), "HF_HUB_DISABLE_TELEMETRY": "1",
               "HF_HUB_DISABLE_UPDATE_CHECK": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_XET": "1",
               "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN"):
    os.environ.pop(name, None)

from huggingface_hub import snapshot_download  # noqa: E402
from huggingface_hub.errors import LocalEntryNotFoundError  # noqa: E402

CACHE = HOME / "hub"
CPU = ("--device", "cpu", "--compute", "f32", "--kv-memory", "64M", "--adapter-memory", "64M")


def files_of(folder: Path, **changes: bytes) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()
            if path.is_file() and path.suffix != ".jsonl"} | changes


def with_settings(file: Path, **settings) -> bytes:
    return json.dumps(json.loads(file.read_text()) | settings).encode()


def run(*words, status: int = 0, **variables: str) -> subprocess.CompletedProcess:
    done = subprocess.run([MOTLEY, *words], capture_output=True, text=True, env=os.environ | variables, timeout=300)
    assert done.returncode == status, done
    return done


def error(*words, **variables: str) -> str:
    return run(*words, status=1, **variables).stderr.splitlines()[-1]


class Names(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        demo = HUB.repository("acme/demo")
        config = MODEL / "config.json"
        cls.main = demo.commit(files_of(MODEL), "main")
        cls.request = demo.commit(files_of(MODEL, **{"config.json": with_settings(config, change=1)}), "refs/pr/1")
        cls.branch = demo.commit(files_of(MODEL, **{"config.json": with_settings(config, change=2)}), "feature/x")
        cls.bare = demo.commit(files_of(MODEL, **{"config.json": with_settings(config, change=3)}))
        cynic = MODEL / "adapters/cynic"
        cls.adapter = HUB.repository("acme/cynic").commit(files_of(cynic), "main", "v1")
        other = with_settings(cynic / "adapter_config.json", base_model_name_or_path="acme/unrelated")
        HUB.repository("acme/stray").commit(files_of(cynic, **{"adapter_config.json": other}), "main")
        for revision in (None, "refs/pr/1", "feature/x", cls.bare):
            snapshot_download("acme/demo", revision=revision)
        for name, revision in (("acme/cynic", "main"), ("acme/cynic", "v1"), ("acme/stray", "main")):
            snapshot_download(name, revision=revision)

    def found(self, name: str) -> str:
        """The folder that motley finds."""
        first = run("inspect", name).stdout.splitlines()[0]
        self.assertTrue(first.startswith("model "), first)
        return first.removeprefix("model ")

    def test_a_revision_is_what_huggingface_hub_finds_without_a_network(self):
        for revision, commit in ((None, self.main), ("main", self.main), ("refs/pr/1", self.request),
                                 ("feature/x", self.branch), (self.bare, self.bare), (self.main, self.main)):
            with self.subTest(revision=revision):
                theirs = snapshot_download("acme/demo", revision=revision, local_files_only=True)
                self.assertEqual(Path(theirs).name, commit)
                for scheme in ("", "hf://"):
                    self.assertEqual(self.found(f"{scheme}acme/demo{'@' + revision if revision else ''}"), theirs)

    def test_an_abbreviated_commit_counts_once_it_was_downloaded_by_that_name(self):
        short = self.bare[:8]
        with self.assertRaises(LocalEntryNotFoundError):
            snapshot_download("acme/demo", revision=short, local_files_only=True)
        self.assertIn(f"write the whole commit: acme/demo@{self.bare}", error("inspect", f"acme/demo@{short}"))
        snapshot_download("acme/demo", revision=short)
        self.assertEqual(Path(self.found(f"acme/demo@{short}")).name, self.bare)

    def test_the_command_of_the_message_fetches_what_is_missing(self):
        HUB.repository("acme/late").commit(files_of(MODEL), "main", "release/1")
        message = error("inspect", "acme/late@release/1", HF_HUB_OFFLINE="1")
        self.assertIn(f"acme/late is not in the Hugging Face cache ({CACHE})", message)
        command = message.split("fetch it: ")[1]
        self.assertEqual(command, "HF_HUB_OFFLINE=0 hf download acme/late --revision release/1")
        hf = Path(sys.executable).parent / "hf"
        subprocess.run(["sh", "-c", command.replace("hf download", f"{shlex.quote(str(hf))} download", 1)], check=True,
                       capture_output=True, env=os.environ | {"HF_HUB_OFFLINE": "1"}, timeout=300)
        self.assertTrue(self.found("acme/late@release/1").startswith(str(CACHE)))
        # But main was not fetched.
        self.assertIn("but not its revision 'main'", error("inspect", "acme/late"))

    def test_a_download_that_ended_early_is_named(self):
        broken = HUB.repository("acme/broken")
        broken.commit(files_of(MODEL), "main")
        broken.refused.add("model.safetensors")
        with self.assertRaises(Exception):
            snapshot_download("acme/broken", max_workers=1)
        message = error("serve", "acme/broken", "--port", "0")
        self.assertIn("model.safetensors", message)
        self.assertTrue(message.endswith(": finish its download: hf download acme/broken"), message)
        broken.refused.clear()
        snapshot_download("acme/broken")
        self.found("acme/broken")

    def test_the_environment_says_where_the_cache_is(self):
        folder = str(CACHE / "models--acme--demo/snapshots" / self.main)
        moved = Path(FOLDER.name).resolve() / "moved"
        moved.symlink_to(HOME)
        for variables in ({"HF_HOME": str(moved)}, {"HF_HUB_CACHE": f"{moved}/hub", "HF_HOME": "/none"},
                          {"HOME": str(moved.parent), "HF_HOME": "~/moved"}, {"HF_HUB_CACHE": "${HF_HOME}/hub"}):
            with self.subTest(variables):
                path = run("inspect", "acme/demo", **variables).stdout.splitlines()[0].removeprefix("model ")
                self.assertEqual(os.path.realpath(path), folder)
        self.assertIn("is not in the Hugging Face cache (/none/hub)", error("inspect", "acme/demo", HF_HOME="/none"))

    def test_commands_take_names(self):
        ids = json.loads(subprocess.run([MOTLEY, "tokenize", "acme/demo"], input="wisdom", capture_output=True, text=True,
                                        check=True).stdout)
        lines, scores = Path(FOLDER.name) / "lines.jsonl", Path(FOLDER.name) / "scores.jsonl"
        lines.write_text(json.dumps({"token_ids": ids * 2, "adapter": "x"}) + "\n")
        run("score", "acme/demo", "--adapter", "x=acme/cynic@v1", "--input", lines, "--output", scores, *CPU[:4])
        self.assertEqual(len(json.loads(scores.read_text())["token_logprobs"]), 2 * len(ids))

    def test_serve(self):
        server = ServerProcess(MOTLEY, "acme/demo", "--adapter", "cynic=acme/cynic@v1", "--adapter", "hf://acme/cynic",
                               "--adapter", "stray=acme/stray", "--allow-adapter-loading", "--adapter-root", CACHE, *CPU)
        try:
            self.assertIn("serving acme/demo at ", server.first_line)
            ids = [model["id"] for model in json.loads(server.get("/v1/models"))["data"]]
            self.assertEqual(ids[0], "acme/demo")
            self.assertEqual(set(ids[1:]), {"cynic", "acme/cynic", "stray"})
            # A snapshot below the root, whose files are links to blobs below the root.
            status, text = server.post("/v1/load_lora_adapter", {
                "lora_name": "late", "lora_path": f"models--acme--cynic/snapshots/{self.adapter}"})
            self.assertEqual(status, 200, text)
            body = {"prompt": "wisdom", "max_tokens": 8, "temperature": 0}
            answers = []
            for name in ("cynic", "acme/cynic", "late"):
                status, text = server.post("/v1/completions", body | {"model": name})
                self.assertEqual(status, 200, text)
                answers.append(json.loads(text)["choices"][0]["text"])
            self.assertEqual(len(set(answers)), 1, answers)
            warned = [line for line in server.lines().splitlines() if "adapter.other_base" in line]
            self.assertEqual(len(warned), 1, warned)
            self.assertIn("adapter=stray", warned[0])
            self.assertIn("trained_on=acme/unrelated", warned[0])
            self.assertEqual(server.end(), 0)
        finally:
            server.close()

    def test_links_out_of_the_root_are_refused(self):
        # The blobs of another disk.
        root = Path(FOLDER.name).resolve() / "root"
        snapshot = root / "models--acme--cynic/snapshots" / self.adapter
        snapshot.mkdir(parents=True)
        for path in (CACHE / "models--acme--cynic/snapshots" / self.adapter).iterdir():
            (snapshot / path.name).symlink_to(path.resolve())
        server = ServerProcess(MOTLEY, "acme/demo", "--adapter", f"mine={snapshot}", "--allow-adapter-loading",
                               "--adapter-root", root, *CPU)
        try:
            # The command line may name any folder.
            self.assertIn('"mine"', server.get("/v1/models"))
            status, text = server.post("/v1/load_lora_adapter", {
                "lora_name": "late", "lora_path": str(snapshot.relative_to(root))})
            self.assertEqual(status, 400, text)
            self.assertIn("lies outside --adapter-root", text)
            self.assertEqual(server.end(), 0)
        finally:
            server.close()

    @classmethod
    def tearDownClass(cls):
        HUB.close()
        FOLDER.cleanup()


unittest.main()
