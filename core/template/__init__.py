"""What a chat template does to messages: found by probing, never by a model's name."""
