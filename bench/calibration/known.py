"""Differences that stay, each with its reason. What is not here fails the calibration."""

from bench.calibration.verdicts import Known

_UNIONS = "pydantic lists a problem for each kind of message, part or prompt that vLLM knows; the sim names the one"

KNOWN = (
    Known("chat, messages null: words", "vLLM gives the words of a Python error; the sim says what is wrong"),
    Known("chat, message without role: words", _UNIONS),
    Known("chat, content a number: words", _UNIONS),
    Known("chat, unknown part: words", _UNIONS),
    Known("text, prompt a number: words", _UNIONS),
    Known("text, prompt texts and ids: words", _UNIONS),
    Known("text, id negative: words", _UNIONS),
    Known("responses, no input: words", "vLLM counts a field that it has itself added to the body"),
)
