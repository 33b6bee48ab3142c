"""A hub of Hugging Face on this machine: as much of its API as huggingface_hub needs to download models.

A repository is a table of commits, each a table of files, and a table of references (branches, tags, refs/pr/N).
"""

import hashlib
import http.server
import json
import threading
import urllib.parse

LARGE = 100_000  # bytes from which a file has the headers of Git LFS


class Repository:
    def __init__(self):
        self.commits: dict[str, dict[str, bytes]] = {}
        self.references: dict[str, str] = {}
        self.refused: set[str] = set()  # files whose contents are not given out

    def commit(self, files: dict[str, bytes], *references: str) -> str:
        """The commit's name."""
        name = hashlib.sha1(repr(sorted(files.items())).encode() + str(len(self.commits)).encode()).hexdigest()
        self.commits[name] = files
        for reference in references:
            self.references[reference] = name
        return name

    def find(self, revision: str) -> str | None:
        """As the hub does, a commit also by its beginning."""
        if revision in self.references:
            return self.references[revision]
        found = [name for name in self.commits if len(revision) >= 7 and name.startswith(revision)]
        return found[0] if len(found) == 1 else None


def blob_id(content: bytes) -> str:
    """Git's name of a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def tree_entry(path: str, content: bytes) -> dict:
    entry = {"type": "file", "path": path, "size": len(content), "oid": blob_id(content)}
    if len(content) >= LARGE:
        entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return entry


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status: int, headers: dict[str, str] = {}, body: bytes = b""):
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer_json(self, value):
        self.answer(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        # The parts are split before they are decoded: a revision may hold a slash.
        parts = [urllib.parse.unquote(part) for part in urllib.parse.urlsplit(self.path).path.strip("/").split("/")]
        is_api = parts[:2] == ["api", "models"]
        organisation, name, call, revision, *rest = (parts[2:] if is_api else parts) + [""] * 4
        repository = self.server.repositories.get(f"{organisation}/{name}")
        if repository is None:
            return self.answer(404, {"X-Error-Code": "RepoNotFound"})
        commit = repository.find(revision)
        if commit is None:
            return self.answer(404, {"X-Error-Code": "RevisionNotFound"})
        files = repository.commits[commit]
        if is_api and call == "revision":
            siblings = [{"rfilename": path} for path in files]
            return self.answer_json({"id": f"{organisation}/{name}", "sha": commit, "siblings": siblings})
        if is_api and call == "tree":
            return self.answer_json([tree_entry(path, content) for path, content in files.items()])
        return self.answer_file(repository, commit, "/".join(part for part in rest if part))

    def answer_file(self, repository: Repository, commit: str, path: str):
        content = repository.commits[commit].get(path)
        if content is None:
            return self.answer(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        if path in repository.refused and self.command == "GET":
            return self.answer(403)
        headers = {"ETag": f'"{blob_id(content)}"', "X-Repo-Commit": commit}
        if len(content) >= LARGE:
            digest = hashlib.sha256(content).hexdigest()
            headers |= {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(content))}
        self.answer(200, {"Content-Length": str(len(content))} | headers, content)


class Hub:
    """Serves its repositories until it is closed."""

    def __init__(self):
        self.repositories: dict[str, Repository] = {}
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.repositories = self.repositories
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def repository(self, name: str) -> Repository:
        return self.repositories.setdefault(name, Repository())

    def close(self):
        self.server.shutdown()
        self.server.server_close()
