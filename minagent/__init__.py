"""An agent runtime to read in one afternoon and to trust with real conversations."""

__all__: list[str] = []
