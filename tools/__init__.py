"""The commands; installed as `albert_tf_tools`, run by `albert-tf <verb>`."""
