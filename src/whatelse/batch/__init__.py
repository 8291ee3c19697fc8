"""Many visits to their tags: batch by batch, in processes, into a file."""
