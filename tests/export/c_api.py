"""Runs a SavedModel with TensorFlow's C library alone; a script for `c_api_test.py`.

`python c_api.py FOLDER TEXTS_AS_JSON` prints the outputs of `serving_default` as JSON.
`TF_LoadSessionFromSavedModel` calls the loader that TensorFlow Serving calls; Python's
TensorFlow is never imported.
"""

import ctypes
import json
import pathlib
import sys
import sysconfig

import numpy as np

SITE = pathlib.Path(sysconfig.get_paths()["purelib"])
STRING, STRING_SIZE = 7, 24
Pointer = ctypes.c_void_p


class Output(ctypes.Structure):
    _fields_ = [("operation", Pointer), ("index", ctypes.c_int)]


class Library:
    """Functions of both shared libraries, by name.

    Opened locally: TensorFlow brings a TLS library of its own, which would otherwise
    take the place of the one that Python's hashlib uses.
    """

    def __init__(self):
        self._libraries = [
            ctypes.CDLL(str(SITE / "tensorflow" / name), mode=ctypes.RTLD_LOCAL)
            for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")
        ]
        self.status = Pointer(self("TF_NewStatus", Pointer))

    def __call__(self, name, result, *arguments):
        for library in self._libraries:
            if hasattr(library, name):
                function = getattr(library, name)
                function.restype = result
                value = function(*arguments)
                break
        else:
            raise AttributeError(name)
        if arguments and arguments[-1] is getattr(self, "status", 0):
            self._check()
        return value

    def _check(self):
        code = self._libraries[0].TF_GetCode(self.status)
        if code:
            message = self._libraries[0].TF_Message
            message.restype = ctypes.c_char_p
            raise RuntimeError(message(self.status).decode())


def main(folder, texts):
    """Loads, runs, prints."""
    tf = Library()
    file = SITE / "tensorflow_text/python/ops/_sentencepiece_tokenizer.so"
    tf("TF_LoadLibrary", Pointer, str(file).encode(), tf.status)
    graph = Pointer(tf("TF_NewGraph", Pointer))
    options = Pointer(tf("TF_NewSessionOptions", Pointer))
    tags = (ctypes.c_char_p * 1)(b"serve")
    session = Pointer(
        tf(
            "TF_LoadSessionFromSavedModel",
            Pointer,
            options,
            None,
            folder.encode(),
            tags,
            1,
            graph,
            None,
            tf.status,
        )
    )

    def output(name):
        operation, index = name.split(":")
        found = tf("TF_GraphOperationByName", Pointer, graph, operation.encode())
        return Output(found, int(index))

    names = json.loads(pathlib.Path(folder, "names.json").read_text())
    keys = ["logits", "label"]
    feed = (Output * 1)(output(names["text"]))
    fetch = (Output * 2)(*(output(names[key]) for key in keys))
    values, results = (Pointer * 1)(strings(tf, texts)), (Pointer * 2)()
    arguments = [session, None, feed, values, 1, fetch, results, 2, None, 0, None]
    tf("TF_SessionRun", None, *arguments, tf.status)
    logits = np.ctypeslib.as_array(
        ctypes.cast(data(tf, results[0]), ctypes.POINTER(ctypes.c_float)),
        (len(texts), tf("TF_Dim", ctypes.c_int64, Pointer(results[0]), 1)),
    )
    first = data(tf, results[1])
    labels = []
    for i in range(len(texts)):
        string = Pointer(first + i * STRING_SIZE)
        size = tf("TF_StringGetSize", ctypes.c_size_t, string)
        start = tf("TF_StringGetDataPointer", Pointer, string)
        labels.append(ctypes.string_at(start, size).decode())
    imported = "tensorflow" in sys.modules
    report = {"logits": logits.tolist(), "labels": labels, "tensorflow": imported}
    print(json.dumps(report))


def strings(tf, texts):
    """A string tensor of rank 1."""
    shape = (ctypes.c_int64 * 1)(len(texts))
    size = ctypes.c_size_t(STRING_SIZE * len(texts))
    tensor = tf("TF_AllocateTensor", Pointer, STRING, shape, 1, size)
    start = data(tf, tensor)
    for i, text in enumerate(texts):
        string, content = Pointer(start + i * STRING_SIZE), text.encode()
        tf("TF_StringInit", None, string)
        tf("TF_StringCopy", None, string, content, ctypes.c_size_t(len(content)))
    return tensor


def data(tf, tensor):
    """Address of a tensor's values."""
    return tf("TF_TensorData", Pointer, Pointer(tensor))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
