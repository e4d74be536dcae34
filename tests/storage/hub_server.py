"""Hugging Face and Kaggle on this machine, as far as their libraries ask."""

import base64
import collections
import contextlib
import hashlib
import http.server
import json
import pathlib
import re
import threading
import urllib.parse

TOKEN = "hf_secret"
_MODEL = re.compile(r"/api/models/([^/]+/[^/]+)(?:/(\w+)/([^/]+))?")
_FILE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_KAGGLE = "/api/v1/models.ModelApiService/"


class Hub:
    """The repositories and what was asked of them.

    Attributes:
        repositories: dict. Name -> {revision: {file name: content}}; "main" is one.
        private: set. Names that need `TOKEN`.
        gated: set. Names whose files are for nobody.
        kaggle: dict. Handle with a version -> {file name: content}.
        cut: set. Names of files whose downloads break off; then they fail.
        damaged: set. Names of files that Kaggle sends with another checksum.
        requests: list of (method, path, token).
        visibility: dict. Name -> the visibility that its creation asked for.
        canonical: dict. Name without an owner -> the name that it is forwarded to.
    """

    def __init__(self):
        self.repositories, self.kaggle, self.visibility = {}, {}, {}
        self.private, self.gated, self.cut, self.damaged = set(), set(), set(), set()
        self.canonical, self.requests, self.url = {}, [], ""

    def commit_of(self, name: str, revision: str) -> str:
        """The commit that a revision, or a commit itself, names; empty if none."""
        revisions = {key: _commit(f) for key, f in self.repositories[name].items()}
        return (
            revision if revision in revisions.values() else revisions.get(revision, "")
        )

    def files_of(self, name: str, commit: str) -> dict[str, bytes]:
        """The files of a commit."""
        return next(f for f in self.repositories[name].values() if _commit(f) == commit)

    def asked(self, part: str = "") -> collections.Counter:
        """Counts requests by method, of paths that contain `part`."""
        return collections.Counter(m for m, path, _ in self.requests if part in path)


def names_in(folder) -> set[str]:
    """The files below a folder."""
    found = [p for p in pathlib.Path(folder).rglob("*") if p.is_file()]
    return {p.relative_to(folder).as_posix() for p in found}


def read(folder) -> dict[str, bytes]:
    """The files below a folder, as a repository has them."""
    return {name: pathlib.Path(folder, name).read_bytes() for name in names_in(folder)}


@contextlib.contextmanager
def serve():
    """Yields a `Hub` that answers on a free port of 127.0.0.1."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield hub
        server.shutdown()


def _commit(files: dict[str, bytes]) -> str:
    text = json.dumps({k: _oid(v) for k, v in sorted(files.items())})
    return _oid(text.encode())


def _oid(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers each request with (status, content, headers)."""

    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *unused):
        pass

    def do_GET(self):
        # A proxy is asked for a whole address.
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        self.token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.hub.requests.append((self.command, path, self.token))
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.file = ""
        status, content, headers = self._answer(path)
        self.send_response(status)
        for name, value in {"Content-Type": "text/plain", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.close_connection = self.file in self.hub.cut
            half = len(content) // 2 if self.close_connection else None
            self.wfile.write(content[:half])

    do_HEAD = do_POST = do_GET

    def _answer(self, path: str):
        if path.startswith(_KAGGLE):
            return self._kaggle(path.removeprefix(_KAGGLE), json.loads(self.body))
        if path == "/api/validate-yaml":
            return _json({"errors": [], "warnings": []})
        if self.command == "POST" and self.token != TOKEN:
            message = "Invalid credentials in Authorization header"
            return 401, b"", {"X-Error-Message": message}
        if path == "/api/repos/create":
            values = json.loads(self.body)
            name = f"{values['organization']}/{values['name']}"
            self.hub.repositories.setdefault(name, {"main": {}})
            self.hub.visibility.setdefault(name, values.get("visibility"))
            return _json({"url": f"{self.hub.url}/{name}"})
        for short, name in self.hub.canonical.items():
            asked = re.fullmatch(rf"(/|/api/models/){short}(/.*)?", path)
            if asked:
                there = f"{asked[1]}{name}{asked[2] or ''}"
                return 307, b"", {"Location": there}
        found = _FILE.fullmatch(path) or _MODEL.fullmatch(path)
        if not found:
            is_model = path.startswith("/api/models/")
            return _refused(404, "RepoNotFound" if is_model else "")
        name, *rest = found.groups()
        known = name in self.hub.repositories
        if not known or (name in self.hub.private and self.token != TOKEN):
            return _refused(404 if self.token else 401, "RepoNotFound")
        is_file = found.re is _FILE
        commit = self.hub.commit_of(name, rest[0 if is_file else 1] or "main")
        if not commit:
            return _refused(404, "RevisionNotFound")
        if is_file:
            return self._download(name, commit, rest[1])
        if self.command == "POST":
            return self._write(name, *rest)
        if rest[0] != "tree":
            return _json({"id": name, "sha": commit, "siblings": []})
        return _json(
            [
                {"type": "file", "path": k, "size": len(v), "oid": _oid(v)}
                for k, v in self.hub.files_of(name, commit).items()
            ]
        )

    def _download(self, name: str, commit: str, file: str):
        files = self.hub.files_of(name, commit)
        if name in self.hub.gated:
            return _refused(403, "GatedRepo")
        if file not in files:
            return _refused(404, "EntryNotFound")
        start = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if file in self.hub.cut and self.hub.asked(f"/{file}")["GET"] > 1:
            return _refused(500)
        self.file = file
        headers = {"ETag": f'"{_oid(files[file])}"', "X-Repo-Commit": commit}
        if start:
            return 206, files[file][int(start[1]) :], headers
        return 200, files[file], headers

    def _write(self, name: str, kind: str, revision: str):
        if kind == "preupload":
            found = json.loads(self.body)["files"]
            answer = {"uploadMode": "regular", "shouldIgnore": False}
            return _json({"files": [{"path": f["path"], **answer} for f in found]})
        files = dict(self.hub.repositories[name][revision])
        for line in map(json.loads, self.body.splitlines()):
            if line["key"] == "file":
                content = base64.b64decode(line["value"]["content"])
                files[line["value"]["path"]] = content
            elif line["key"] == "deletedFile":
                del files[line["value"]["path"]]
        self.hub.repositories[name][revision] = files
        commit = _commit(files)
        url = f"{self.hub.url}/{name}/commit/{commit}"
        return _json({"commitUrl": url, "commitOid": commit})

    def _kaggle(self, method: str, asked: dict):
        names = ("ownerSlug", "modelSlug", "framework", "instanceSlug")
        handle = "/".join(str(asked[name]) for name in names).lower()
        handle = handle.replace("model_framework_", "")
        versions = [key.rpartition("/") for key in self.hub.kaggle]
        newest = max((int(n) for key, _, n in versions if key == handle), default=0)
        version = asked.get("versionNumber") or newest
        files = self.hub.kaggle.get(f"{handle}/{version}")
        if files is None:
            return _refused(404)
        if method == "GetModelInstance":
            return _json({"versionNumber": version})
        if method == "ListModelInstanceVersionFiles":
            return _json({"files": [{"name": name} for name in files]})
        self.file = asked["path"]
        content = files[self.file]
        hashed = b"" if self.file in self.hub.damaged else content
        md5 = base64.b64encode(hashlib.md5(hashed).digest()).decode()
        return 200, content, {"x-goog-hash": f"md5={md5}"}


def _json(content):
    return 200, json.dumps(content).encode(), {"Content-Type": "application/json"}


def _refused(status: int, code: str = ""):
    return status, b"", {"X-Error-Code": code} if code else {}
