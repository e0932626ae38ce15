"""Chapter 10: fitting the window."""
