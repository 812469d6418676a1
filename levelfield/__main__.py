"""`python -m levelfield`, the same as `levelfield`."""

from levelfield.cli.app import main

if __name__ == "__main__":
    main()
