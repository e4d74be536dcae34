"""Work that is cut in parts, kept and resumed: here, in processes or on Apache Beam."""
