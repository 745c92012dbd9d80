"""Key services: the contract of a client. Built-in clients are ``icelock.kms.aws.AwsKms`` and so on (docs/how-to/kms.md)."""

from icelock.kms.client import KmsClient

__all__ = ["KmsClient"]
