"""What pictures by matplotlib share, and the pictures of timelines."""
