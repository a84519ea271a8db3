"""What others see of locks: deadlocks, inspection, operators. Imports ``lease`` and the layers below it."""
