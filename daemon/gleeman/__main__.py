"""`python -m gleeman` is the same as `gleeman`, and what our own children are started by."""

import sys


def run() -> None:
    """Turn to a child's job, else to the command line. Children skip what only people need."""
    try:
        if sys.argv[1:2] == ["_text"]:
            from .text.child import main as child

            child()
            return
        from .cli import main

        main()
    except KeyboardInterrupt:  # before the command line could take care of it
        sys.exit(130)


if __name__ == "__main__":
    run()
