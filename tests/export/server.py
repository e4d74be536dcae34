"""Serves SavedModels over TensorFlow Serving's API, for tests; a script and a module.

`python server.py BASE NAME` serves the versions below the folder `BASE` as model `NAME`
and prints `READY`, the ports of REST and gRPC, the number of warm-up requests, and
whether Python's TensorFlow was imported, 0: its C library loads and runs the models
(`c_api.py`). gRPC needs the messages of `tensorflow-serving-api`; without them its port
is 0.

This is not TensorFlow Serving: it shows that the SavedModel, its warm-up requests and
its answers fit the API, not how the real server parses, batches or schedules.
"""

import http.server
import importlib.util
import json
import math
import pathlib
import re
import struct
import sys
import threading
import types

import numpy as np

from tests.export import c_api
from tests.export.c_api import INVALID_ARGUMENT, NOT_FOUND, SITE, Error

# Only TensorFlow's message classes are imported, not TensorFlow.
if "tensorflow" not in sys.modules:
    sys.modules["tensorflow"] = types.ModuleType("tensorflow")
    sys.modules["tensorflow"].__path__ = [str(SITE / "tensorflow")]

from google.protobuf import json_format
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import saved_model_pb2

from albert_tf.storage import protobuf

WARMUP = "assets.extra/tf_serving_warmup_requests"
MAX_ELEMENTS = 1 << 24
HTTP_STATUS = {3: 400, 5: 404, 8: 429, 9: 412, 11: 416, 12: 501}
# Where TensorProto keeps numbers that are not in tensor_content.
_VALUES = {1: "float_val", 3: "int_val", 9: "int64_val", 10: "bool_val"}


class Servable:
    """The versions of one model.

    Raises:
        Error: If a version cannot be loaded, or one of its warm-up requests fails.
    """

    def __init__(self, base: pathlib.Path, name: str):
        self.name, self.versions, self.warmed = name, {}, 0
        self._definitions = {}
        # As TensorFlow Serving does: other names are not versions.
        for folder in sorted(p for p in base.iterdir() if p.name.isdecimal()):
            model = c_api.Model(folder)
            for signature, inputs in warmup_requests(folder / WARMUP):
                model.run(signature, inputs)
                self.warmed += 1
            version = int(folder.name)
            self.versions[version] = model
            self._definitions[version] = definitions(folder)

    def find(self, name: str, version: int | None) -> tuple[int, c_api.Model]:
        """Returns a version, by default the newest."""
        version = version or max(self.versions, default=0)
        if name != self.name or version not in self.versions:
            raise Error(NOT_FOUND, f"Servable not found for request: {name} {version}")
        return version, self.versions[version]

    def metadata(self, version: int) -> dict:
        """Returns the signatures as `GetModelMetadata` shows them."""
        spec = {"name": self.name, "signature_name": "", "version": str(version)}
        inner = {
            "@type": "type.googleapis.com/tensorflow.serving.SignatureDefMap",
            "signature_def": self._definitions[version],
        }
        return {"model_spec": spec, "metadata": {"signature_def": inner}}

    def status(self, version: int | None) -> dict:
        """Returns the state of one version or of all."""
        return {
            "model_version_status": [
                {
                    "version": str(number),
                    "state": "AVAILABLE",
                    "status": {"error_code": "OK", "error_message": ""},
                }
                for number in sorted(self.versions, reverse=True)
                if version in (None, number)
            ]
        }


def definitions(folder: pathlib.Path) -> dict[str, dict]:
    """Returns a SavedModel's signatures as JSON."""
    data = (folder / "saved_model.pb").read_bytes()
    meta_graph = saved_model_pb2.SavedModel.FromString(data).meta_graphs[0]
    return {
        name: json_format.MessageToDict(
            definition,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
        )
        for name, definition in meta_graph.signature_def.items()
        if not name.startswith("__")
    }


def warmup_requests(file: pathlib.Path):
    """Yields (signature, inputs) of a TFRecord file of `PredictionLog`."""
    data = file.read_bytes() if file.exists() else b""
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        record, data = data[12 : 12 + size], data[16 + size :]
        log = dict(protobuf.fields(record))[6]
        request = list(protobuf.fields(dict(protobuf.fields(log))[1]))
        entries = (dict(protobuf.fields(v)) for n, v in request if n == 2)
        inputs = {
            entry[1].decode(): from_proto(tensor_pb2.TensorProto.FromString(entry[2]))
            for entry in entries
        }
        yield dict(protobuf.fields(dict(request)[1]))[3].decode(), inputs


def from_proto(tensor: tensor_pb2.TensorProto) -> np.ndarray:
    """Turns a `TensorProto` into an array.

    Raises:
        Error: If its type is unknown or its values do not fill its shape.
    """
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    if math.prod(shape) > MAX_ELEMENTS:  # which may be one value, repeated
        raise Error(INVALID_ARGUMENT, f"not a tensor: {math.prod(shape)} elements")
    try:
        if tensor.dtype == c_api.STRING:
            found = np.empty(len(tensor.string_val), object)
            found[:] = list(tensor.string_val)
        elif tensor.tensor_content:
            kind = c_api.DTYPES[tensor.dtype]
            found = np.frombuffer(tensor.tensor_content, kind)
        else:
            values = getattr(tensor, _VALUES[tensor.dtype])
            found = np.array(values, c_api.DTYPES[tensor.dtype])
        if found.size == 1:
            return np.full(shape, found[0], found.dtype)
        return found.reshape(shape)
    except (KeyError, ValueError, OverflowError) as e:
        raise Error(INVALID_ARGUMENT, f"not a tensor: {e!r}") from None


def to_proto(value: np.ndarray) -> tensor_pb2.TensorProto:
    """Turns an array into a `TensorProto`."""
    tensor = tensor_pb2.TensorProto()
    for size in value.shape:
        tensor.tensor_shape.dim.add().size = size
    if value.dtype == object:
        tensor.dtype = c_api.STRING
        tensor.string_val.extend(value.reshape(-1).tolist())
    else:
        kinds = {np.dtype(kind): number for number, kind in c_api.DTYPES.items()}
        tensor.dtype = kinds[value.dtype]
        tensor.tensor_content = value.tobytes()
    return tensor


def predict(model: c_api.Model, request: dict) -> dict:
    """Answers the JSON of a predict request, in rows (`instances`) or columns."""
    name = request.get("signature_name", "serving_default")
    if not isinstance(name, str) or name not in model.signatures:
        raise Error(INVALID_ARGUMENT, f"no signature {str(name)[:80]!r}")
    if ("instances" in request) == ("inputs" in request):
        raise Error(INVALID_ARGUMENT, "expected one of 'instances' and 'inputs'")
    takes, rows = model.signatures[name][0], "instances" in request
    columns = request.get("inputs")
    if rows:
        columns = _columns(request["instances"], takes)
    elif not isinstance(columns, dict) or columns.keys() == {"b64"}:
        columns = {_only(takes): columns}
    if unknown := columns.keys() - takes.keys():
        raise Error(INVALID_ARGUMENT, f"no input {str(sorted(unknown))[:80]}")
    inputs = {key: c_api.to_array(v, takes[key][1]) for key, v in columns.items()}
    outputs = {k: c_api.to_json(v) for k, v in model.run(name, inputs).items()}
    if not rows:
        return {"outputs": outputs if len(outputs) > 1 else outputs.popitem()[1]}
    if len({len(value) for value in outputs.values()}) > 1:
        raise Error(INVALID_ARGUMENT, "outputs of different batch sizes")
    if len(outputs) == 1:
        return {"predictions": outputs.popitem()[1]}
    rows = zip(*outputs.values(), strict=True)
    return {"predictions": [dict(zip(outputs, row, strict=True)) for row in rows]}


def _columns(rows, takes: dict) -> dict[str, list]:
    if not isinstance(rows, list) or not rows:
        raise Error(INVALID_ARGUMENT, "instances: expected a list that is not empty")
    if not isinstance(rows[0], dict) or rows[0].keys() == {"b64"}:
        return {_only(takes): rows}
    keys = rows[0].keys()
    if not all(isinstance(row, dict) and row.keys() == keys for row in rows):
        raise Error(INVALID_ARGUMENT, "instances: rows with different names")
    return {key: [row[key] for row in rows] for key in keys}


def _only(takes: dict) -> str:
    if len(takes) != 1:
        raise Error(INVALID_ARGUMENT, f"name the inputs: {sorted(takes)}")
    return next(iter(takes))


def read_json(body: bytes) -> dict:
    """Parses a request; bytes that are not UTF-8 stay what they are."""
    try:
        request = json.loads(body.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as e:
        raise Error(INVALID_ARGUMENT, f"JSON Parse error: {str(e)[:80]}") from None
    if not isinstance(request, dict):
        raise Error(INVALID_ARGUMENT, "expected a JSON object")
    return request


def rest_handler(servable: Servable) -> type:
    """Returns the handler of the REST API."""
    route = re.compile(
        r"/v1/models/([^/:]+)(?:/versions/(\d{1,18}))?(?:/(metadata)|:(predict))?"
    )

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *unused):
            pass

        def _answer(self, post: bool) -> dict:
            size = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(size)
            match = route.fullmatch(self.path)
            if not match or bool(match[4]) != post:
                raise Error(NOT_FOUND, "no such address")
            wanted = int(match[2] or 0) or None  # 0 is the newest
            version, model = servable.find(match[1], wanted)
            if post:
                return predict(model, read_json(body))
            if match[3]:
                return servable.metadata(version)
            return servable.status(wanted)

        def _go(self, post: bool) -> None:
            try:
                status, answer = 200, self._answer(post)
            except Error as e:
                status = HTTP_STATUS.get(e.code, 500)
                answer = {"error": str(e)[:1024]}
            except Exception as e:  # the test must see it
                status, answer = 500, {"error": repr(e)[:1024]}
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self):
            self._go(False)

        def do_POST(self):
            self._go(True)

    return Handler


def main(base: str, name: str) -> None:
    """Loads, serves until the input ends."""
    servable = Servable(pathlib.Path(base), name)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), rest_handler(servable))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    grpc_port = 0
    if importlib.util.find_spec("tensorflow_serving"):
        from tests.export import grpc_server

        grpc_port = grpc_server.start(servable)
    imported = int("tensorflow.python" in sys.modules)
    ports = server.server_address[1], grpc_port
    print("READY", *ports, servable.warmed, imported, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
