"""The command line: one verb per public function."""
