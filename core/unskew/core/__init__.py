"""Pure decisions: numpy in, numpy out. No I/O, no clock, no threads, no ambient randomness."""
