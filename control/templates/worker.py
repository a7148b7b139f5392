"""The process in which chat templates run: `python -m homing.control.templates.worker`.

A template is code from a model's publisher. The sandbox keeps it from files, imports and attributes; this process
keeps what a sandbox cannot: the time (an alarm of processor time, since a busy machine is no fault of a template's,
ends the process whatever C code it is in), the memory (an address space of its own), and the secrets (an environment
without any). One job at a time: a frame in, a frame out (four bytes of length, then msgpack). The end of its input is
its own.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import IO

import msgspec

from homing.control.templates.environment import Template
from homing.core.template.probe import OpaqueError, RefusedError, probe
from homing.core.template.record import Capabilities
from homing.core.template.source import ChatTemplate

TIME_LIMIT_S = 2.0
MEMORY_LIMIT_BYTES = 512 << 20
KEPT_COMPILED = 16
NICENESS = 5


class Probe(msgspec.Struct, frozen=True, tag="probe"):
    template: ChatTemplate
    seed: bytes
    dates: tuple[str, ...]


class Rendering(msgspec.Struct, frozen=True, tag="render"):
    template: ChatTemplate
    messages: list[dict[str, object]]
    tools: list[object] | None = None


class Recorded(msgspec.Struct, frozen=True, tag="recorded"):
    record: Capabilities


class Rendered(msgspec.Struct, frozen=True, tag="rendered"):
    text: str


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """The template said no, or cannot be one. `words` are its own."""

    words: str


Job = Probe | Rendering
Answer = Recorded | Rendered | Refusal


class Bench:
    """Does jobs, and keeps the templates compiled that it used last."""

    def __init__(self) -> None:
        self._compiled: dict[ChatTemplate, Template] = {}

    def do(self, job: Job) -> Answer:
        try:
            template = self._template(job.template)
            if isinstance(job, Probe):
                return Recorded(probe(template.render, job.seed, job.dates))
            return Rendered(template.render(job.messages, job.tools))
        except (RefusedError, OpaqueError) as error:
            return Refusal(str(error))
        except (MemoryError, RecursionError) as error:
            return Refusal(type(error).__name__)

    def _template(self, source: ChatTemplate) -> Template:
        compiled = self._compiled.pop(source, None) or Template(source)
        self._compiled[source] = compiled
        while len(self._compiled) > KEPT_COMPILED:
            del self._compiled[next(iter(self._compiled))]
        return compiled


def serve(jobs: IO[bytes], answers: IO[bytes], time_limit_s: float) -> None:
    """Until the end of `jobs`. A job that takes longer than the limit ends the process by SIGPROF."""
    bench, decode, encode = Bench(), msgspec.msgpack.Decoder(Job).decode, msgspec.msgpack.encode
    while len(head := jobs.read(4)) == 4:
        job = decode(jobs.read(int.from_bytes(head)))
        signal.setitimer(signal.ITIMER_PROF, time_limit_s)
        body = encode(bench.do(job))
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(len(body).to_bytes(4) + body)
        answers.flush()


def confine(memory_limit_bytes: int) -> None:
    """No more memory than that, no files, no core; and whoever serves requests goes first."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_limit_bytes, memory_limit_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the process that started this one
    os.nice(NICENESS)


if __name__ == "__main__":
    confine(MEMORY_LIMIT_BYTES)
    serve(sys.stdin.buffer, sys.stdout.buffer, float(sys.argv[1]) if len(sys.argv) > 1 else TIME_LIMIT_S)
