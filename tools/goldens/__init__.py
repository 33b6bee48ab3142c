"""Makes the golden set of tests/goldens; see tests/goldens/README.md for what it holds."""
