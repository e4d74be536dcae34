"""Fine-tuning tasks: data, metrics and recipes; one module per family of tasks."""
