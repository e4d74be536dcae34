"""Ends a run after the step it is at, when a person or the system asks for it.

Machines that can be taken away send SIGTERM first and leave some seconds.
"""

import contextlib
import os
import select
import signal
import threading


class StopSignals(contextlib.AbstractContextManager):
    """Notes SIGINT (Ctrl-C) and SIGTERM inside a `with` statement.

    A second signal has the effect it had before, usually to end the process at once.
    Does nothing outside the main thread, where Python handles no signals.

    Attributes:
        received: str. Name of the signal that arrived, such as "SIGTERM", or "".
    """

    def __init__(self):
        self.received = ""
        self._before: dict[int, object] = {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                # A shell's background job ignores Ctrl-C, and goes on ignoring it.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception):
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _note(self, number, frame):
        del frame
        self.received = signal.Signals(number).name
        # Not `print`: the signal may have come in the middle of one.
        text = "saving at the end of this step; the next one ends at once"
        with contextlib.suppress(OSError):
            os.write(2, f"\n{self.received}: {text}\n".encode())
        # Ctrl-C also ends `tee`: nothing that is written to it may end this process.
        stderr = select.poll()
        stderr.register(2, 0)
        if stderr.poll(200):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        self.__exit__()
