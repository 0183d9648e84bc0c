"""Contracts: the .proto files and the stubs generated from them, nothing else."""
