"""The file `homing.yaml`: its models, and `parse`, which reads it or says everything that is wrong with it."""

from homing.core.config.address import Address
from homing.core.config.context import ProofConfig, TemplateConfig
from homing.core.config.discovery import Discovery, Docker, Kubernetes
from homing.core.config.document import MAX_FILE_BYTES
from homing.core.config.models import Config, HealthCheck, PoolConfig, ReplicaConfig, Sessions, Tenants
from homing.core.config.problems import ConfigError, Problem
from homing.core.config.reading import parse

__all__ = [
    "MAX_FILE_BYTES",
    "Address",
    "Config",
    "ConfigError",
    "Discovery",
    "Docker",
    "HealthCheck",
    "Kubernetes",
    "PoolConfig",
    "Problem",
    "ProofConfig",
    "ReplicaConfig",
    "Sessions",
    "TemplateConfig",
    "Tenants",
    "parse",
]
