"""What pickers share: the table of homes and their parts of the load, among siblings and through Redis.

Nothing of it is on the way of a request, but for one read of at most 5 ms where Redis may know a session that is seen
here for the first time.
"""
