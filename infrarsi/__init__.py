"""InfraRSI makes an existing training job faster and proves that it is still the same job."""

__version__ = "0.1.0"
