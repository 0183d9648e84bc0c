"""Everything that touches pyspark: plans for DataFrames, both routing faces, operators."""
