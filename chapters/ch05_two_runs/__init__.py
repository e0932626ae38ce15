"""Chapter 05: two runs, one conversation."""
