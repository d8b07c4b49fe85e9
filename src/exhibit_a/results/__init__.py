"""What every result is: numbers with the checks on them, as an object, a file and a table."""
