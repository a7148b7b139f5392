"""What may happen to a conversation on its way: how much of it fits, what a session has lost, whose cache it shares."""
