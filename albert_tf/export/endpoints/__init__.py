"""Defines the endpoints of exported models: tensors in, answers out."""
