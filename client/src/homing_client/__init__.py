"""One conversation, one session: keeps the id that the gateway gives, and sends it with every turn."""

from homing_client.conversation import Conversation

__all__ = ["Conversation"]
__version__ = "0.1.0"
