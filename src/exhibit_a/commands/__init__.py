"""The verbs of the command line. Heavy libraries are imported inside each, so help is quick."""
