"""Training frameworks: their trainers as workers of a run. Each module needs the framework that it is named after."""
