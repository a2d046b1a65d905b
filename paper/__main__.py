"""`python -m paper`, from a clone: the paper's experiments, and how far learned counterfactuals are from the truth."""

import os


def main() -> None:
    """Run the command line."""
    # Read when torch is loaded; threads that wait by spinning, the default, are many times slower on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from paper.commands import app

    app(prog_name="python -m paper")


if __name__ == "__main__":
    main()
