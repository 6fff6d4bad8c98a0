"""The paper's experiments by one command: `orlomo reproduce NAME`."""
