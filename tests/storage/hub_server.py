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
    """

    def __init__(self):
        self.repositories, self.private, self.kaggle = {}, set(), {}
        self.cut, self.damaged, self.visibility = set(), set(), {}
        self.gated = set()
        self.requests = []
        self.url = ""

    def commit_of(self, name: str, revision: str) -> str:
        """The commit that a revision, or a commit itself, names; empty if none."""
        revisions = {key: _commit(f) for key, f in self.repositories[name].items()}
        if revision in revisions.values():
            return revision
        return revisions.get(revision, "")

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
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


def _commit(files: dict[str, bytes]) -> str:
    text = json.dumps({k: _oid(v) for k, v in sorted(files.items())})
    return _oid(text.encode())


def _oid(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


class _Handler(http.server.BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *unused):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self._record()
        if match := _FILE.fullmatch(path):
            self._send_file(*match.groups())
        elif match := _MODEL.fullmatch(path):
            self._describe(*match.groups())
        else:
            self._refuse(404)

    def do_POST(self):
        path = self._record()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if path.startswith(_KAGGLE):
            self._kaggle(path.removeprefix(_KAGGLE), json.loads(body))
        elif path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif self._token() != TOKEN:
            self._refuse(401, message="Invalid credentials in Authorization header")
        elif path == "/api/repos/create":
            values = json.loads(body)
            name = f"{values['organization']}/{values['name']}"
            self.hub.repositories.setdefault(name, {"main": {}})
            self.hub.visibility.setdefault(name, values.get("visibility"))
            self._json({"url": f"{self.hub.url}/{name}"})
        else:
            self._write(*_MODEL.fullmatch(path).groups(), body)

    def _record(self) -> str:
        # A proxy is asked for a whole address.
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        self.hub.requests.append((self.command, path, self._token()))
        return path

    def _token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def _find(self, name: str, revision: str) -> str:
        """The commit, or empty after an answer that refuses."""
        known = name in self.hub.repositories
        if not known or (name in self.hub.private and self._token() != TOKEN):
            self._refuse(401 if not self._token() else 404, "RepoNotFound")
            return ""
        commit = self.hub.commit_of(name, revision)
        if not commit:
            self._refuse(404, "RevisionNotFound")
        return commit

    def _describe(self, name: str, kind: str | None, revision: str | None):
        commit = self._find(name, revision or "main")
        if commit and kind == "tree":
            files = self.hub.files_of(name, commit)
            entries = [
                {"type": "file", "path": k, "size": len(v), "oid": _oid(v)}
                for k, v in files.items()
            ]
            self._json(entries)
        elif commit:
            self._json({"id": name, "sha": commit, "siblings": []})

    def _send_file(self, name: str, revision: str, file: str):
        commit = self._find(name, revision)
        if not commit:
            return
        files = self.hub.files_of(name, commit)
        if name in self.hub.gated:
            self._refuse(403, "GatedRepo")
            return
        if file not in files:
            self._refuse(404, "EntryNotFound")
            return
        start = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        first = int(start[1]) if start else 0
        if file in self.hub.cut and self.hub.asked(f"/{file}")["GET"] > 1:
            self._refuse(500)
            return
        content = files[file][first:]
        headers = {"ETag": f'"{_oid(files[file])}"', "X-Repo-Commit": commit}
        self._send(206 if start else 200, content, headers, file in self.hub.cut)

    def _write(self, name: str, kind: str, revision: str, body: bytes):
        if not self._find(name, revision):
            return
        if kind == "preupload":
            found = json.loads(body)["files"]
            answer = {"uploadMode": "regular", "shouldIgnore": False}
            self._json({"files": [{"path": f["path"], **answer} for f in found]})
            return
        files = dict(self.hub.repositories[name][revision])
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                content = base64.b64decode(line["value"]["content"])
                files[line["value"]["path"]] = content
            elif line["key"] == "deletedFile":
                del files[line["value"]["path"]]
        self.hub.repositories[name][revision] = files
        commit = _commit(files)
        url = f"{self.hub.url}/{name}/commit/{commit}"
        self._json({"commitUrl": url, "commitOid": commit})

    def _kaggle(self, method: str, asked: dict):
        names = ("ownerSlug", "modelSlug", "framework", "instanceSlug")
        handle = "/".join(str(asked[name]) for name in names).lower()
        handle = handle.replace("model_framework_", "")
        versions = [
            int(key.rpartition("/")[2])
            for key in self.hub.kaggle
            if key.rpartition("/")[0] == handle
        ]
        version = asked.get("versionNumber") or max(versions, default=0)
        files = self.hub.kaggle.get(f"{handle}/{version}")
        if files is None:
            self._refuse(404)
        elif method == "GetModelInstance":
            self._json({"versionNumber": version})
        elif method == "ListModelInstanceVersionFiles":
            self._json({"files": [{"name": name} for name in files]})
        else:
            file = asked["path"]
            content = files[file]
            hashed = b"" if file in self.hub.damaged else content
            md5 = base64.b64encode(hashlib.md5(hashed).digest()).decode()
            headers = {"x-goog-hash": f"md5={md5}"}
            self._send(200, content, headers, file in self.hub.cut)

    def _json(self, content):
        headers = {"Content-Type": "application/json"}
        self._send(200, json.dumps(content).encode(), headers)

    def _refuse(self, status: int, code: str = "", message: str = ""):
        headers = {"X-Error-Code": code, "X-Error-Message": message}
        self._send(status, b"", {k: v for k, v in headers.items() if v})

    def _send(self, status: int, content: bytes, headers: dict, cut: bool = False):
        self.send_response(status)
        for name, value in {"Content-Type": "text/plain", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(content[: len(content) // 2] if cut else content)
        self.close_connection = cut
