"""`python -m motley` is the command `motley`."""

from .program import main

main()
