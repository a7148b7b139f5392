"""homing brings every conversation home: session affinity and context integrity in front of vLLM.

This package is a namespace of links: each sub-package is a folder at the repository's root, so that
nothing installs a top-level `control` or `cli`.
"""

__version__ = "0.1.0"
