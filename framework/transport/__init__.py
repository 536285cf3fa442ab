"""Messages between front-end processes and engine-core processes.

`messages` says what is sent, `codec` how it becomes frames, `tensor_ipc` how large arrays travel
beside them, `sockets` over what, and `runtime_dir` where sockets and files of a launch lie.
"""
