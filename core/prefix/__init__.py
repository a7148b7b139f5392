"""Who holds which part of a prompt in its prefix cache.

`prompt` cuts a request's messages into marks; `placed` knows what was sent where (approximate); `blocks` what the
engines say that they hold (precise); `learned` which blocks a prompt's messages are; `index` answers from all of them.
Everything here is an estimate for placement: a wrong answer costs time, never a wrong result.
"""
