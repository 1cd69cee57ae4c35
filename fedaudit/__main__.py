"""`python -m fedaudit` is the command `fedaudit`; torchrun starts it by this name."""

from fedaudit.audit.cli.main import main

if __name__ == "__main__":
    main()
