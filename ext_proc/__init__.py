"""The filter: one exchange with Envoy as a state machine, its codec, and the servers that carry it."""
