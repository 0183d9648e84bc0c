"""Structured Streaming: every micro-batch bound to one plan before its first task starts (DESIGN section 7, pins).

- ``foreach``: what Spark calls for each batch: bind, route, hand over, learn for the next one;
- ``binding``: which plan or Q-table a batch is bound to, kept beside the query's checkpoint;
- ``observed``: how a batch's keys are counted while its own job runs;
- ``forecasts``: from what was seen to the plan of a later batch, off the batch's way;
- ``elasticity``: Prompt's Algorithm 4 from measured batch times;
- ``queries``: what a batch's frame says of its query.
"""
