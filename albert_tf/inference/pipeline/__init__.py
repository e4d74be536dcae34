"""Answers of an exported model to many texts, as Apache Beam pipelines."""
