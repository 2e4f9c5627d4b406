"""Jobs with one slow rank, and jobs whose ranks are alike, on a quiet and on a busy machine, for DD601."""
