"""What the engines on real time have in common: the loop, the membership of workers, requests from outside."""
