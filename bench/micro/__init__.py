"""What the parts of a decision cost: `python -m pytest bench/micro`. Figures are in docs/micro.md."""
