"""Which task reads which rows of a shuffle that is already written: rows are placed by what came, in one job.

The map stage of a shuffle writes rows into cells, finer than tasks: a row's cell is a function of its key. When it is
done, and before the first reduce task, it is decided here which cells each task reads. Begin with ``assign``;
``cell_loads`` says how many rows each cell has, by a sample, and ``layout`` how many cells there are. ``cell_table`` is
what remains of it for a micro-batch that runs again.
"""
