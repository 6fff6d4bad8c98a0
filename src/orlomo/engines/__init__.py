"""What runs the workers. Each engine is one folder; `live` is what the real-time engines have in common."""
