"""By which counts a batch is placed: those of the batches before, or its own."""
