"""Measurements: against real engines and against peers. Not part of what is installed."""
