"""What homing reads and changes in a request's body. Everything that it does not change stays as it came."""

from homing.core.chat.body import NotAnObjectError, model_of, with_model

__all__ = ["NotAnObjectError", "model_of", "with_model"]
