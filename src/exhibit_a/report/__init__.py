"""What people see: the page, the notebook cell, the terminal."""
