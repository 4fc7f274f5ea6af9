"""Other libraries' shapes on this package's public functions."""
