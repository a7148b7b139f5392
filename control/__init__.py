"""The control plane: who is in the fleet, who is fit, and how Envoy and the pickers hear of it."""
