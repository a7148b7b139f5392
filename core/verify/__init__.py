"""Whether affinity does for a cluster what it should: the same conversations twice through one gateway, their turns
scattered and then kept together, and what the difference says. No I/O: `cli/verify` sends and asks."""
