"""A discrete-event comparison of rules of placement: the product's own placer against the rules of others."""
