"""From text to batches: corpus, sentence pairs, records, masking, packing, tasks."""
