"""The witness inside a training process: standard library and the job's own torch, Python 3.8+.

Loaded as `_infrarsi_witness` by `inject/sitecustomize.py`. Nothing here may raise into the job,
write to stdout, draw from a random generator, wait for a device, or start CUDA.
"""
