"""Chapter 09: memory is not a session."""
