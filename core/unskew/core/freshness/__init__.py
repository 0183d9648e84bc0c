"""How fresh the counts are that place a batch: those of the batches before, or its own. Begin with ``trust``."""
