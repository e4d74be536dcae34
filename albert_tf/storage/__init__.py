"""Reading and writing files and folders, local or in a bucket."""
