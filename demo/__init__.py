"""A tour of cupyconv: four problems of KernelBench, and two jobs on a photograph."""
