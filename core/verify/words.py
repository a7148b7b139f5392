"""Text of common short words: about one token each in any vocabulary, so that texts of as many words are as long.

Drawn by a hash of where the word stands: the same seed gives the same text on any Python, in whatever order it is made.
"""

from __future__ import annotations

import xxhash

# Of three letters all: texts of as many words have as many characters, too.
WORDS = """
    act age ago aid aim air all and any are arm art ask bad bag bar bed big bit box boy bus but buy can car cat cup
    cut day did dog dry due ear eat egg end eye far few fit fly for fun gas get god got had has hat her him his hit
    hot how ice its job key kid law lay leg let lie lot low man map may men met mix new nor not now oil old one our
    out own pay per put ran raw red row run sat saw say sea see set she sit six sky son sun tax tea ten the tie too
    top try two use war was way who why win yes yet you
""".split()  # noqa: SIM905 - as a list literal it would be a page long


def words(count: int, seed: int, *place: object) -> str:
    """`count` words. `place`: what tells this text from others of the same seed."""
    name = "/".join(map(str, place))
    drawn = (xxhash.xxh64_intdigest(f"{name}/{i}".encode(), seed) % len(WORDS) for i in range(count))
    return " ".join(WORDS[i] for i in drawn)


def salt(nonce: int, run: str) -> str:
    """Eight words of a run's own: there are some 10^16. `nonce` is another with every measurement, or a second
    one would find in the caches what the first has left there."""
    return words(8, nonce, "salt", run)
