"""Placement: filter -> cost -> pick. One small module per filter and per cost term.

`home` puts them together: which replica a request goes to, and why.
"""
