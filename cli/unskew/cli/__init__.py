"""The `unskew` command. Imports the other portions lazily and says which extra is missing."""
