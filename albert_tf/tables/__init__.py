"""Reading tables, folders and prepared data sets."""
