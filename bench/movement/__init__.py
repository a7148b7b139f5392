"""What each hash moves on each kind of change. `python -m bench.movement --out docs/movement.md` writes the page."""
