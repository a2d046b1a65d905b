"""`python -m ifonly` is the command line, where no `ifonly` command is installed."""

from ifonly.cli import main

if __name__ == "__main__":
    main()
