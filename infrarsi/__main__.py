"""`python -m infrarsi`."""

from infrarsi.cli.main import main

if __name__ == "__main__":
    main()
