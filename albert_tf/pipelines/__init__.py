"""Running functions over many elements, on any runner of Apache Beam."""
