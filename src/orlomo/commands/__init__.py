"""The command line: one file per group of commands. Nothing here loads torch until a command is carried out."""
