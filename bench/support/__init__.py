"""Which versions of Envoy, Python and vLLM homing was tested with: tests run with each, a page says the outcome."""
