"""Looking at logs without changing them: showing, measuring, comparing, converting."""
