"""Jobs on a real cluster of separate executors that lose executors, files and tasks half-way, and what they give."""
