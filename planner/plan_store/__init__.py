"""Published plans: a folder of versions with one pointer, written by one planner at a time."""
