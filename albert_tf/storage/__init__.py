"""Reading and writing files, folders and archives, local or in a bucket."""
