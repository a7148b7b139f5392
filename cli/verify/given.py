"""What options give, checked before anything is sent. An error never repeats a value: it may be a key."""

from __future__ import annotations

import re

import click
import httpx

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")  # a token, RFC 9110 5.6.2
_VALUE = re.compile(r"[ -~\t]*")
_PATHS = ("/metrics", "/chat/completions", "/completions", "/v1")
"""What is pasted with an address and is none of it; /v1 is in front of some of the others."""


def address(option: str, url: str) -> httpx.URL:
    """Where a server is, without the path of what is asked for there. Raises click.UsageError."""
    try:
        found = httpx.URL(url)
        port = found.port
    except (httpx.InvalidURL, ValueError) as error:
        raise click.UsageError(f"{option}: {error}") from None
    if found.userinfo:
        raise click.UsageError(f"{option}: no user and no password in it, for it is shown: --header says who asks")
    if found.scheme not in ("http", "https"):
        raise click.UsageError(f"{option} {url}: begins with http:// or https://")
    if not found.host or ("%" in found.host and ":" not in found.host):  # %: what no name may have in it
        raise click.UsageError(f"{option} {url}: names no host")
    if port is not None and not 1 <= port <= 65535:
        raise click.UsageError(f"{option} {url}: a port is a number from 1 to 65535")
    path = found.path.rstrip("/")
    for known in _PATHS:
        path = path.removesuffix(known)
    return found.copy_with(path=path or "/", query=None, fragment=None)


def name(option: str, text: str) -> str:
    """Of a header, as it was given. Raises click.UsageError."""
    if _NAME.fullmatch(text) is None:
        raise click.UsageError(f"{option}: a header's name has letters, digits and - in it, and no blanks")
    return text


def value(option: str, text: str) -> str:
    """Of a header. Raises click.UsageError."""
    if _VALUE.fullmatch(text) is None:
        raise click.UsageError(f"{option}: a header's value is printable ASCII, of one line")
    return text
