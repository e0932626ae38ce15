"""Chapter 02: events, not messages."""
