"""`python -m metagen.cli`."""

from metagen.cli import main

if __name__ == "__main__":
    main()
