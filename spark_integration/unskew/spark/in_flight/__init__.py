"""Rows placed by what came, inside the job that reads them: one read of the source, no counting job, stock Spark.

The map stage writes rows into cells; between it and the first reduce task the driver decides which cells each task
reads (``core/in_flight``). Begin with ``place``: what verbs call. ``map_stage`` runs the stage and makes the frame, and
is the only module here that looks behind pyspark's public API; ``cell_sample`` says how rows are counted as they pass.
"""
