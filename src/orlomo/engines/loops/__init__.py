"""The server side of users' own training loops: which worker uses which samples."""
