"""Chapter 06: surviving the restart."""
