"""The configuration as values: what `homing.yaml` holds, checked, with its defaults. Every key is in
docs/configuration.md; a test holds the two equal.

All models are frozen, hashable and comparable, so a reload tells by `==` whether anything changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, PlainValidator

from homing.core.config.address import Address, EngineAddress
from homing.core.config.context import (
    MODE,
    ContextConfig,
    IsolationConfig,
    ProofConfig,
    RepairConfig,
    TemplateConfig,
)
from homing.core.config.control import ControlConfig
from homing.core.config.discovery import MAX_RANKS, Discovery
from homing.core.config.issued import Cookie, Signed
from homing.core.config.keys import Keys
from homing.core.config.kinds import (
    Choice,
    Engine,
    FieldName,
    Integer,
    Listener,
    ListOf,
    MapOf,
    Number,
    PinStore,
    Secret,
    SessionHeader,
    Switch,
    Text,
)
from homing.core.config.placement import Placement
from homing.core.config.secret import SecretRef
from homing.core.config.tls import HOST_NAME, OptionalFile, Tls, Tokens
from homing.core.fleet import Fleet, HashPolicy, Mode, Pool, Replica, State, ranked

LOOPBACK_ONLY = Listener(
    "a loopback address and a port from 1 to 65535, such as 127.0.0.1:9901 (it asks nobody who they are)", loopback=True
)
BODY_FIELDS = ("conversation", "session_id", "session_params.session_id", "prompt_cache_key")
POOL_ID = Text(
    r"[a-z0-9][a-z0-9._-]{0,62}",
    "a lower-case letter or digit, then up to 62 of a-z 0-9 . _ -; not beginning with homing- or homing_",
    reserved=("homing-", "homing_"),
)
REPLICA_ID = Text(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", "a letter or digit, then up to 127 of A-Z a-z 0-9 . _ : -")
MODEL_NAME = Text(
    r"[!#-\[\]-~]{1,256}", "1 to 256 printable ASCII characters, without blanks, double quotes or backslashes"
)
HEALTH_PATH = Text(
    r"/[!$-~]{0,255}", 'a path that begins with /, up to 256 printable ASCII characters, no " # or blank'
)

EVENTS_ENDPOINT = Text(
    r"(tcp://([A-Za-z0-9.:_-]|\[|\]|\{host\}|\{id\}){1,255}:[0-9]{1,5}|ipc://([!-z|~]|\{host\}|\{id\}){1,100})",
    "tcp://HOST:PORT or ipc://PATH; in it {host} is the replica's host, and {id} its id",
)

SageMaker = Literal["gateway", "engine", "off"]
PoolId = Annotated[str, PlainValidator(POOL_ID)]
ModelName = Annotated[str, PlainValidator(MODEL_NAME)]
SwitchValue = Annotated[bool, PlainValidator(Switch())]
HeaderName = Annotated[str, PlainValidator(FieldName())]
BodyField = Annotated[str, PlainValidator(Choice((*BODY_FIELDS, "user")))]
SessionHeaderName = Annotated[str, PlainValidator(SessionHeader())]
ListenAddress = Annotated[Address, PlainValidator(Listener())]
LoopbackAddress = Annotated[Address, PlainValidator(LOOPBACK_ONLY)]
EventsEndpoint = Annotated[str, PlainValidator(EVENTS_ENDPOINT)]
Threshold = Annotated[int, PlainValidator(Integer(1, 100))]


class ReplicaConfig(Keys):
    """One vLLM engine, or with a `dp_size` as many at one address. Its id is what the hash is made of: keep it when the
    address changes."""

    id: Annotated[str, PlainValidator(REPLICA_ID)]
    address: Annotated[EngineAddress, PlainValidator(Engine())]
    weight: Annotated[int, PlainValidator(Integer(1, 128))] = 1
    dp_size: Annotated[int, PlainValidator(Integer(1, MAX_RANKS))] = 1
    adapters: Annotated[tuple[ModelName, ...], BeforeValidator(ListOf("model names", 0, 64))] = ()

    def replicas(self) -> Iterator[Replica]:
        """One for each data-parallel rank."""
        for rank in range(self.dp_size) if self.dp_size > 1 else (None,):
            yield Replica(
                ranked(self.id, rank),
                str(self.address),
                self.weight,
                State.JOINING,
                False,
                self.adapters,
                rank,
                tls=self.address.host if self.address.secure else "",
            )


Proof = Literal["auto", "chat", "completion", "embedding", "rerank", "off"]


class EngineConfig(Keys):
    """What the engines of a pool offer beside their API. Empty: nothing."""

    kv_events: EventsEndpoint = ""
    replay: EventsEndpoint = ""
    proof: Annotated[Proof, PlainValidator(Choice(get_args(Proof)))] = "auto"
    api_key: Annotated[SecretRef | None, PlainValidator(Secret())] = None

    tls: SwitchValue = False
    ca: OptionalFile = None
    cert: OptionalFile = None
    key: OptionalFile = None
    server_name: Annotated[str, PlainValidator(HOST_NAME)] = ""

    @property
    def endpoints(self) -> tuple[str, str]:
        return self.kv_events, self.replay

    def secured(self, replica: Replica) -> Replica:
        """With the name that its certificate has to bear, where it speaks TLS. `replica`: as a source reports it."""
        if not (self.tls or replica.tls):
            return replica
        return replace(replica, tls=self.server_name or replica.tls or Address.parse(replica.address).host)


class _PoolKeys(Keys):
    aliases: Annotated[tuple[ModelName, ...], BeforeValidator(ListOf("model names", 0, 64))] = ()
    replicas: Annotated[tuple[ReplicaConfig, ...], BeforeValidator(ListOf("replicas", 0, 1000))] = ()
    discovery: Discovery | None = None
    hash: Annotated[HashPolicy, PlainValidator(Choice(("ring", "maglev", "ketama")))] = "ring"
    engine: EngineConfig = Field(default_factory=EngineConfig)
    template: TemplateConfig = Field(default_factory=TemplateConfig)
    mode: Annotated[Mode, PlainValidator(MODE)] = "full"
    repair: RepairConfig = Field(default_factory=RepairConfig)
    proof: ProofConfig = Field(default_factory=ProofConfig)
    context: ContextConfig = Field(default_factory=ContextConfig)
    isolation: IsolationConfig = Field(default_factory=IsolationConfig)
    placement: Placement = Field(default_factory=Placement)


class PoolSection(_PoolKeys):
    """A pool as the file has it: its id is the key above it."""

    served_name: ModelName = ""  # the pool's id

    def under(self, pool_id: str) -> PoolConfig:
        return PoolConfig(
            id=pool_id,
            served_name=self.served_name or pool_id,
            aliases=self.aliases,
            replicas=self.replicas,
            discovery=self.discovery,
            hash=self.hash,
            engine=self.engine,
            template=self.template,
            mode=self.mode,
            repair=self.repair,
            proof=self.proof,
            context=self.context,
            isolation=self.isolation,
            placement=self.placement,
        )


class PoolConfig(_PoolKeys):
    """Replicas that serve the same model. `id` names Envoy's cluster."""

    id: PoolId
    served_name: ModelName

    @property
    def speaks_tls(self) -> bool:
        """Whether some of its engines do, or may."""
        return self.engine.tls or any(replica.address.secure for replica in self.replicas)

    def pool(self) -> Pool:
        replicas = tuple(self.engine.secured(replica) for each in self.replicas for replica in each.replicas())
        return Pool(self.id, self.served_name, self.aliases, self.hash, replicas)


class Sessions(Keys):
    """How a session is known, and for how long. `max` bounds the sessions that a picker remembers."""

    headers: Annotated[tuple[SessionHeaderName, ...], BeforeValidator(ListOf("header names", 1, 16))] = (
        "x-session-id",
        "x-amzn-sagemaker-session-id",
        "x-claude-code-session-id+x-claude-code-agent-id",
        "session-id",
        "session_id",
        "x-session-affinity",
        "x-smg-routing-key",
        "x-dynamo-session-id",
        "x-aibrix-session-key",
    )
    body_fields: Annotated[tuple[BodyField, ...], BeforeValidator(ListOf("fields", 0, 8))] = BODY_FIELDS
    history: SwitchValue = True
    sagemaker: Annotated[SageMaker, PlainValidator(Choice(get_args(SageMaker)))] = "gateway"
    cookie: Cookie | None = None
    signed: Signed | None = None
    ttl_s: Annotated[float, PlainValidator(Number(0.001, 31_536_000))] = 1800.0
    max: Annotated[int, PlainValidator(Integer(1, 10_000_000))] = 200_000
    pins: Annotated[str | SecretRef, PlainValidator(PinStore())] = "memory"
    secret: Annotated[SecretRef | None, PlainValidator(Secret())] = None


class Tenants(Keys):
    """Which header names the tenant. `trusted`: a hop before us sets it; else every copy is dropped at the edge."""

    header: HeaderName
    trusted: SwitchValue = False


class HealthCheck(Keys):
    """How a replica is probed: GET `path`; a success is 200."""

    path: Annotated[str, PlainValidator(HEALTH_PATH)] = "/health"
    interval_s: Annotated[float, PlainValidator(Number(0.1, 3600))] = 1.0
    timeout_s: Annotated[float, PlainValidator(Number(0.01, 300))] = 1.0
    unhealthy_threshold: Threshold = 2
    healthy_threshold: Threshold = 1
    passive: SwitchValue = True


class Auto(Keys):
    """A model's name that leaves the choice to homing: the session's own model, `default` where it has none yet."""

    model: ModelName = "auto"
    pools: Annotated[tuple[PoolId, ...], BeforeValidator(ListOf("pools", 1, 200))]
    default: PoolId


class _TopKeys(Keys):
    listen: ListenAddress = Address("127.0.0.1", 8080)
    admin: LoopbackAddress = Address("127.0.0.1", 9901)
    xds: ListenAddress = Address("127.0.0.1", 18000)
    api: ListenAddress = Address("127.0.0.1", 8600)
    tls: Tls = Field(default_factory=Tls)
    tokens: Tokens = Field(default_factory=Tokens)
    expose_decisions: SwitchValue = False
    sessions: Sessions = Field(default_factory=Sessions)
    tenants: Tenants | None = None
    auto: Auto | None = None
    health: HealthCheck = Field(default_factory=HealthCheck)
    control: ControlConfig = Field(default_factory=ControlConfig)


class FileSection(_TopKeys):
    """The whole file: pools by their ids."""

    pools: Annotated[dict[PoolId, PoolSection], BeforeValidator(MapOf("pools", 1, 200))]

    def config(self) -> Config:
        return Config(
            listen=self.listen,
            admin=self.admin,
            xds=self.xds,
            api=self.api,
            tls=self.tls,
            tokens=self.tokens,
            expose_decisions=self.expose_decisions,
            pools=tuple(self._pool(pool_id, section) for pool_id, section in self.pools.items()),
            sessions=self.sessions,
            tenants=self.tenants,
            auto=self.auto,
            health=self.health,
            control=self.control,
        )

    def _pool(self, pool_id: str, section: PoolSection) -> PoolConfig:
        """`auto` is one more alias of its default: without a picker it leads there."""
        pool = section.under(pool_id)
        if self.auto is None or self.auto.default != pool_id:
            return pool
        return pool.model_copy(update={"aliases": (*pool.aliases, self.auto.model)})


class Config(_TopKeys):
    """What every process is configured by. Pools are in the order of the file."""

    pools: tuple[PoolConfig, ...]

    def fleet(self) -> Fleet:
        """The fleet as written: nobody has been probed yet."""
        return Fleet(tuple(pool.pool() for pool in self.pools))
