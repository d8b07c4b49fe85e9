"""What every result is: numbers with their doubts, on disk and as a table."""
