"""The domain, pure: no I/O, no grpc, no protobuf, no asyncio, no clock, no logging.

tests/core/test_purity.py holds it to that.
"""
