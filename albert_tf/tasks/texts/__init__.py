"""Classification and regression of texts and pairs; GLUE."""
