"""Which keys are heavy, in bounded memory: a mergeable summary of a key stream, with its error stated.

Begin with ``frequent`` (``FrequentItems``). ``tally`` checks what comes in and folds a batch to distinct keys.
"""
