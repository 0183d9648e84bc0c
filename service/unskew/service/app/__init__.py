"""The process: settings in, a running service out, with logs, TLS, telemetry and compiled kernels. Begin with
``main``."""
