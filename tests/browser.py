"""Drives a real browser, Chromium, through its debugging pipe; needs no library."""

import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_TIMEOUT = 120.0
_KEYS = {"ArrowLeft": 37, "ArrowRight": 39, "Escape": 27}
SHIFT, CTRL = 8, 2
# Becomes the browser, which reads file descriptor 3 and writes 4. Both are copied to
# high numbers first, because one may have the other's place.
_START = """
import fcntl, os, sys
high = [fcntl.fcntl(int(n), fcntl.F_DUPFD, 64) for n in sys.argv[1:3]]
os.dup2(high[0], 3)
os.dup2(high[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find() -> str | None:
    """Returns the path of a browser, None without one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser(contextlib.AbstractContextManager):
    """A browser without a window, with one page.

    Attributes:
        requests: list of str. Addresses that the page has asked for.
        errors: list of str. Exceptions of scripts, and messages of the browser such as
            violations of the page's policy.
    """

    def __init__(self, path: str):
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._number, self._buffer, self._session = 0, b"", None
        theirs, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--remote-debugging-pipe",
            f"--user-data-dir={self._profile.name}",
            "about:blank",
        ]
        pipes = [str(theirs), str(theirs_out)]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _START, *pipes, path, *options],
            pass_fds=(theirs, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs)
        os.close(theirs_out)
        try:
            self._attach()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exception):
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def _attach(self) -> None:
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        found = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the DevTools protocol and returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + _TIMEOUT
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self._in, 1 << 20)
            if not data:
                raise RuntimeError("the browser has ended")
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method: str | None, values: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(values["exceptionDetails"]))
        if method == "Log.entryAdded":
            self.errors.append(values["entry"]["text"])

    def open(self, page: pathlib.Path, width: int, height: int, **media: str) -> None:
        """Opens a file in a window of a size, with media features such as a scheme."""
        features = [
            {"name": name.replace("_", "-"), "value": value}
            for name, value in media.items()
        ]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.resize(width, height)
        self.call("Page.navigate", url=page.as_uri())
        self.wait("location.protocol === 'file:' && document.readyState === 'complete'")

    def resize(self, width: int, height: int) -> None:
        """Changes the size of the window."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", mobile=width < 600, **size)

    def evaluate(self, expression: str) -> Any:
        """Returns the value of an expression, in the terms of JSON."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(json.dumps(found["exceptionDetails"]))
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Waits until an expression is true."""
        deadline = time.monotonic() + _TIMEOUT
        while not self.evaluate(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(condition)
            time.sleep(0.02)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Sends an event of the mouse: "Moved", "Pressed", "Released" or "Wheel"."""
        name = f"mouse{kind}"
        self.call("Input.dispatchMouseEvent", type=name, x=x, y=y, **more)

    def drag(self, start: tuple[float, float], x: float, modifiers: int = 0) -> None:
        """Drags from a place to another one at the same height."""
        button = {"button": "left", "buttons": 1, "modifiers": modifiers}
        self.mouse("Moved", *start)
        self.mouse("Pressed", *start, clickCount=1, **button)
        for part in (0.3, 0.7, 1.0):
            self.mouse("Moved", start[0] + part * (x - start[0]), start[1], **button)
        self.mouse("Released", x, start[1], clickCount=1, **button)

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        """Sends an event of fingers: "Start", "Move" or "End"."""
        places = [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)]
        self.call("Input.dispatchTouchEvent", type=f"touch{kind}", touchPoints=places)

    def key(self, key: str, modifiers: int = 0) -> None:
        """Presses a key."""
        code = _KEYS.get(key, ord(key[0]))
        text = {} if key in _KEYS else {"text": key}
        common = {"key": key, "modifiers": modifiers, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)
