"""The process: settings in, a running service out, with its ports, logs, TLS, traces and compiled kernels. Begin with
``main``: everything is created and connected there."""
