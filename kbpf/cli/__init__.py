"""Click commands: parse, print, exit code."""
