"""The name that Flight's certificate is for."""

NAME = "dipc-bench"
