"""Runs a SavedModel with TensorFlow's C library alone; a script and a module.

`ask` starts the script in a process without Python's TensorFlow and Keras.
`TF_LoadSessionFromSavedModel` calls the loader that TensorFlow Serving calls.
"""

import ctypes
import importlib.util
import math
import pathlib
import pickle
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p

import numpy as np

# Where TensorFlow is; it is not imported.
SITE = pathlib.Path(importlib.util.find_spec("tensorflow").origin).parents[1]
STRING, STRING_SIZE = 7, 24
DTYPES = {1: np.float32, 2: np.float64, 3: np.int32, 9: np.int64, 10: np.bool_}
INVALID_ARGUMENT = 3


class Output(ctypes.Structure):
    _fields_ = [("operation", c_void_p), ("index", c_int)]


# Result and arguments of the functions used here.
_FUNCTIONS = {
    "TF_NewStatus": (c_void_p,),
    "TF_DeleteStatus": (None, c_void_p),
    "TF_GetCode": (c_int, c_void_p),
    "TF_Message": (c_char_p, c_void_p),
    "TF_LoadLibrary": (c_void_p, c_char_p, c_void_p),
    "TF_NewGraph": (c_void_p,),
    "TF_NewSessionOptions": (c_void_p,),
    "TF_LoadSessionFromSavedModel": (
        *(c_void_p, c_void_p, c_void_p, c_char_p, POINTER(c_char_p), c_int, c_void_p),
        *(c_void_p, c_void_p),
    ),
    "TF_GraphOperationByName": (c_void_p, c_void_p, c_char_p),
    "TF_AllocateTensor": (c_void_p, c_int, POINTER(c_int64), c_int, c_size_t),
    "TF_DeleteTensor": (None, c_void_p),
    "TF_TensorData": (c_void_p, c_void_p),
    "TF_TensorType": (c_int, c_void_p),
    "TF_NumDims": (c_int, c_void_p),
    "TF_Dim": (c_int64, c_void_p, c_int),
    "TF_StringInit": (None, c_void_p),
    "TF_StringCopy": (None, c_void_p, c_char_p, c_size_t),
    "TF_StringDealloc": (None, c_void_p),
    "TF_StringGetSize": (c_size_t, c_void_p),
    "TF_StringGetDataPointer": (c_void_p, c_void_p),
    "TF_SessionRun": (
        *(None, c_void_p, c_void_p, POINTER(Output), POINTER(c_void_p), c_int),
        *(POINTER(Output), POINTER(c_void_p), c_int, c_void_p, c_int, c_void_p),
        c_void_p,
    ),
}


class Error(RuntimeError):
    """What TensorFlow answered instead of a result, with its code."""

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code


class Library:
    """Functions of both shared libraries, by name.

    Opened locally: TensorFlow brings a TLS library of its own, which would otherwise
    take the place of the one that Python's hashlib uses.
    """

    def __init__(self):
        libraries = [
            ctypes.CDLL(str(SITE / "tensorflow" / name), mode=ctypes.RTLD_LOCAL)
            for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")
        ]
        for name, (result, *arguments) in _FUNCTIONS.items():
            owner = next(lib for lib in libraries if hasattr(lib, name))
            function = getattr(owner, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def checked(self, name: str, *arguments):
        """Calls a function whose last argument is a status.

        Raises:
            Error: If the status is not OK.
        """
        status = self.TF_NewStatus()
        try:
            result = getattr(self, name)(*arguments, status)
            if code := self.TF_GetCode(status):
                message = self.TF_Message(status).decode(errors="replace")
                raise Error(code, message)
            return result
        finally:
            self.TF_DeleteStatus(status)


class Model:
    """A loaded SavedModel.

    Args:
        folder: str. The model.
        signatures: dict. For each name two dicts, the tensors of the inputs and those
            of the outputs by name.
    """

    def __init__(self, folder: str, signatures: dict[str, tuple[dict, dict]]):
        self._tf = tf = Library()
        for name in ("_sentencepiece_tokenizer.so", "_normalize_ops.so"):
            file = SITE / "tensorflow_text/python/ops" / name
            tf.checked("TF_LoadLibrary", str(file).encode())
        self._graph = tf.TF_NewGraph()
        options, tags = tf.TF_NewSessionOptions(), (c_char_p * 1)(b"serve")
        arguments = (options, None, str(folder).encode(), tags, 1, self._graph, None)
        self._session = tf.checked("TF_LoadSessionFromSavedModel", *arguments)
        self.signatures = signatures

    def run(self, signature: str, inputs: dict[str, np.ndarray]) -> dict:
        """Returns the outputs by name; strings are arrays of bytes.

        Raises:
            Error: If the signature refuses the inputs.
        """
        takes, gives = self.signatures[signature]
        tensors = []
        try:
            for value in inputs.values():
                tensors.append(self._tensor(value))
            return self._run(takes, list(inputs), tensors, gives)
        finally:
            for tensor in tensors:
                self._delete_input(tensor)

    def _run(self, takes, names, tensors, gives):
        feeds = (Output * len(names))(*(self._output(takes[n]) for n in names))
        fetches = (Output * len(gives))(*(self._output(t) for t in gives.values()))
        values = (c_void_p * len(tensors))(*tensors)
        results = (c_void_p * len(gives))()
        self._tf.checked(
            "TF_SessionRun",
            *(self._session, None, feeds, values, len(names)),
            *(fetches, results, len(gives), None, 0, None),
        )
        try:
            return {
                name: self._array(result)
                for name, result in zip(gives, results, strict=True)
            }
        finally:
            for result in results:
                self._tf.TF_DeleteTensor(result)

    def _output(self, tensor: str) -> Output:
        operation, _, index = tensor.partition(":")
        found = self._tf.TF_GraphOperationByName(self._graph, operation.encode())
        return Output(found, int(index))

    def _tensor(self, value: np.ndarray) -> int:
        tf, shape = self._tf, (c_int64 * max(value.ndim, 1))(*value.shape)
        if value.dtype != object:
            value = np.ascontiguousarray(value)
            dtype = next(n for n, kind in DTYPES.items() if kind == value.dtype)
            tensor = tf.TF_AllocateTensor(dtype, shape, value.ndim, value.nbytes)
            ctypes.memmove(tf.TF_TensorData(tensor), value.ctypes.data, value.nbytes)
            return tensor
        size = STRING_SIZE * value.size
        tensor = tf.TF_AllocateTensor(STRING, shape, value.ndim, size)
        for string, content in zip(self._strings(tensor), value.flat, strict=True):
            tf.TF_StringInit(string)
            tf.TF_StringCopy(string, content, len(content))
        return tensor

    def _array(self, tensor: int) -> np.ndarray:
        shape, dtype = self._shape(tensor), self._tf.TF_TensorType(tensor)
        if dtype == STRING:
            found = np.empty(math.prod(shape), object)
            found[:] = [
                ctypes.string_at(
                    self._tf.TF_StringGetDataPointer(string),
                    self._tf.TF_StringGetSize(string),
                )
                for string in self._strings(tensor)
            ]
            return found.reshape(shape)
        size = math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize
        data = ctypes.string_at(self._tf.TF_TensorData(tensor), size) if size else b""
        return np.frombuffer(data, DTYPES[dtype]).reshape(shape)

    def _shape(self, tensor: int) -> list[int]:
        rank = self._tf.TF_NumDims(tensor)
        return [self._tf.TF_Dim(tensor, i) for i in range(rank)]

    def _strings(self, tensor: int) -> list[int]:
        """Addresses of a tensor's strings."""
        count = math.prod(self._shape(tensor))
        start = self._tf.TF_TensorData(tensor) if count else 0
        return [start + i * STRING_SIZE for i in range(count)]

    def _delete_input(self, tensor: int) -> None:
        # The strings of a tensor that TensorFlow made are freed with it, ours are not.
        if self._tf.TF_TensorType(tensor) == STRING:
            for string in self._strings(tensor):
                self._tf.TF_StringDealloc(string)
        self._tf.TF_DeleteTensor(tensor)


def ask(
    folder, requests: Sequence[tuple[str, Mapping[str, np.ndarray]]]
) -> tuple[list[dict | Error], list[int], list[str]]:
    """Returns what the C library answers to (signature, inputs), in another process.

    Returns:
        The outputs of each request, or the `Error`; the megabytes of the process after
        each; and which of TensorFlow's Python and Keras it imported: neither.
    """
    from albert_tf.export import manifest  # imports TensorFlow

    (graph,) = manifest.read_saved_model(folder).meta_graphs
    signatures = {
        name: tuple(
            {k: x.name for k, x in part.items()} for part in (s.inputs, s.outputs)
        )
        for name, s in graph.signature_def.items()
    }
    done = subprocess.run(
        [sys.executable, __file__, str(folder)],
        input=pickle.dumps((signatures, list(requests))),
        env={"PYTHONPATH": str(pathlib.Path(__file__).parents[2])},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    answers, memory, imported = pickle.loads(done.stdout)
    return [Error(*x) if isinstance(x, tuple) else x for x in answers], memory, imported


def main(folder: str) -> None:
    """Loads, runs, writes what `ask` returns."""
    signatures, requests = pickle.load(sys.stdin.buffer)
    model, answers, memory = Model(folder, signatures), [], []
    for signature, inputs in requests:
        try:
            answers.append(model.run(signature, inputs))
        except Error as e:
            answers.append((e.code, str(e)))
        pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
        memory.append(int(pages) * resource.getpagesize() >> 20)
    imported = sorted({"tensorflow", "keras"} & set(sys.modules))
    sys.stdout.buffer.write(pickle.dumps((answers, memory, imported)))


if __name__ == "__main__":
    main(sys.argv[1])
