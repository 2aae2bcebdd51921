"""Commands that write files of a project, and the templates that they write."""
