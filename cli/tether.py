"""Runs a program that the kernel kills when the supervisor dies: `tether.py SUPERVISOR_PID PROGRAM [ARGS...]`.

It replaces itself by the program, so one process is seen. A program of its own rather than a `preexec_fn`:
that would run Python between fork and exec, which is unsafe where the supervisor has threads.
Run it with `-I -S`: it must cost nothing. Elsewhere than on Linux it only runs the program.

prctl(2), PR_SET_PDEATHSIG: survives execve, and is sent when the parent's thread that forked ends.
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1
NO_SUCH_PROGRAM = 127


def die_with(supervisor_pid: int) -> None:
    """SIGKILL, not SIGTERM: a frozen child, or one that waits for its clients, must end as well."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != supervisor_pid:  # it died before prctl: no signal will come
        raise SystemExit(1)


def run(supervisor_pid: int, argv: list[str]) -> None:
    """Does not return. Exits with 127 and one line when the program cannot be run."""
    if sys.platform == "linux":
        die_with(supervisor_pid)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        sys.stderr.write(f"cannot run {argv[0]}: {error.strerror}\n")
        raise SystemExit(NO_SUCH_PROGRAM) from None


if __name__ == "__main__":
    run(int(sys.argv[1]), sys.argv[2:])
