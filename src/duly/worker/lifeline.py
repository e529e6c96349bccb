"""Ends this process with the one that started it, however that one ends.

On Linux the kernel sends the signal. Elsewhere a thread looks once a second.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have this process sent `number` when the process `parent` ends; at once if it has ended already.

    The kernel looks at the thread that started us, so a parent must do that from one that stays.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), number)
    else:
        threading.Thread(target=_watch, args=(parent, number), name="duly-lifeline", daemon=True).start()


def _watch(parent: int, number: signal.Signals) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), number)
