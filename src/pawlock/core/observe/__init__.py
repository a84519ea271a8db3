"""What others see of locks: deadlocks, histories, inspection, operators. Imports ``lease`` and the layers below it."""
