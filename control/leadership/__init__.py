"""Several control services that act as one: one of them decides who is fit to serve, the others pass it on."""
