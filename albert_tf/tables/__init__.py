"""Reading tables, folders and prepared data sets, whatever their columns mean."""
