"""Trains small drafter heads (DSpark) that read a target's hidden states."""
