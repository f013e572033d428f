"""Operator and routers are started as they must be, with no more rights than they need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from sglr_dataplane.api.front_door import FrontDoor
from sglr_dataplane.app import Router
from sglr_dataplane.config import RouterConfig
from sglr_operator import cli as operator_cli
from sglr_operator import keeper
from sglr_operator.config import CopyConfig
from sglr_operator.probes import health_app
from support.charts import (
    EVERYTHING,
    MATRIX,
    NAMESPACE,
    container,
    one,
    operator_arguments,
    pods,
    render,
    router_arguments,
    rules,
)


@pytest.mark.parametrize("case", MATRIX)
def test_every_pod_passes_the_restricted_standard(case: str) -> None:
    """What Pod Security's restricted profile asks for, and a root file system that is read-only."""
    for _, spec in pods(render(MATRIX[case])):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 65532
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        for each in spec["containers"]:
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "runAsNonRoot": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"requests", "limits"} <= set(each["resources"])
            assert each["name"] == "test" or "tmp" in {m["name"] for m in each["volumeMounts"]}
        for volume in spec["volumes"]:
            assert set(volume) - {"name"} <= {
                "configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret",
            }  # fmt: skip


@pytest.mark.parametrize("case", MATRIX)
def test_the_operator_understands_its_flags(case: str) -> None:
    """Its own parser takes them, and its own rules find no contradiction."""
    config = operator_cli._config(operator_arguments(render(MATRIX[case])))

    assert config.push.address.port == 9443
    assert config.http.port == 8081
    assert config.lease.namespace == NAMESPACE
    assert config.debug is None


@pytest.mark.parametrize("case", MATRIX)
def test_the_routers_understand_their_flags(case: str) -> None:
    """Their own parser takes them; every file they name is in a volume that is mounted."""
    objects = render(MATRIX[case])
    arguments = router_arguments(objects)
    mounts = [m["mountPath"] for m in container(objects, "sglr-router")["volumeMounts"]]

    assert (arguments.host, arguments.port) == ("0.0.0.0", 8080)
    assert arguments.operator == f"sglr-operator.{NAMESPACE}.svc:9443"
    files = [
        arguments.operator_ca,
        arguments.operator_certificate,
        arguments.operator_key,
        arguments.operator_token,
        arguments.last_known_good,
        arguments.last_known_good_copy,
        Path(arguments.keys_file) if arguments.keys_file else None,
    ]
    for file in filter(None, files):
        assert str(file.parent) in mounts
    has_tls = MATRIX[case].get("push", {}).get("tls", {}).get("mode") != "disabled"
    assert (arguments.operator_ca is not None) is has_tls
    assert sum(f is not None for f in (arguments.operator_token, arguments.operator_key)) == has_tls


def test_a_router_ends_its_streams_before_it_is_killed() -> None:
    """A46: settle and drain are what it is told, and the pod's grace is longer than both."""
    objects = render({"router": {"shutdown": {"settle": "7s", "drain": "90s", "margin": "3s"}}})
    arguments = router_arguments(objects)
    pod = one(objects, "Deployment", "sglr-router")["spec"]["template"]["spec"]

    assert (arguments.drain_settle, arguments.drain_deadline) == (7.0, 97.0)
    assert pod["terminationGracePeriodSeconds"] == 100


@pytest.mark.parametrize(("wait", "hook"), [("0s", False), ("20s", True)])
def test_a_pre_stop_hook_needs_no_shell(wait: str, hook: bool) -> None:
    """Without a wait there is none; with one, it runs what the image has."""
    first = container(render({"router": {"shutdown": {"preStop": wait}}}), "sglr-router")

    assert ("lifecycle" in first) is hook
    if hook:
        command = first["lifecycle"]["preStop"]["exec"]["command"]
        assert command == ["python3", "-c", "import time; time.sleep(20)"]


def test_the_routers_are_probed_where_they_answer() -> None:
    """Alive and ready are different questions: a router without workers is not restarted."""
    first = container(render(), "sglr-router")
    app = Router(RouterConfig()).app
    assert isinstance(app, FrontDoor)
    paths = {path for path, _ in app.served}

    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert first[probe]["httpGet"] == {"path": path, "port": "http", "scheme": "HTTP"}
    assert {"/livez", "/readyz", "/metrics"} <= paths
    assert first["ports"] == [{"name": "http", "containerPort": 8080}]


def test_a_router_is_told_its_zone_by_its_pod_or_by_the_user() -> None:
    """From the label that newer clusters give pods, and once: two entries of a name are refused."""

    def zone(values: dict[str, Any]) -> Any:
        (entry,) = (
            e for e in container(render(values), "sglr-router")["env"] if e["name"] == "SGLR_ZONE"
        )
        return entry

    by_pod = {"fieldRef": {"fieldPath": "metadata.labels['topology.kubernetes.io/zone']"}}
    by_user = {"name": "SGLR_ZONE", "value": "a"}
    assert zone({}) == {"name": "SGLR_ZONE", "valueFrom": by_pod}
    assert zone({"router": {"extraEnv": [by_user]}}) == by_user


def test_traces_go_where_the_value_says() -> None:
    """By default nowhere."""
    assert router_arguments(render(MATRIX["traces"])).otlp_endpoint == "http://collector:4318"
    assert router_arguments(render()).otlp_endpoint is None


def test_the_operator_is_probed_where_it_answers() -> None:
    """Each probe's path is a route of its health server, on its port."""
    app = health_app(live=tuple, ready=tuple, refresh=lambda: None, registry=CollectorRegistry())
    routes = {route.resource.canonical for route in app.router.routes() if route.resource}
    first = container(render(), "sglr-operator")

    assert first["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "http"}
    assert first["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert {"/livez", "/readyz", "/metrics"} <= routes
    assert {"name": "http", "containerPort": 8081} in first["ports"]


def test_the_operator_has_a_user_name() -> None:
    """Kopf asks for one, and a uid without an entry in passwd has none."""
    variables = {e["name"]: e.get("value") for e in container(render(), "sglr-operator")["env"]}

    assert variables["USER"]
    assert {"POD_NAME", "POD_UID", "POD_NAMESPACE"} <= set(variables)


def test_a_standby_is_found_but_not_preferred() -> None:
    """Routers see all operators; whoever does not lead refuses, and the next address is tried."""
    service = one(render({"operator": {"replicas": 2}}), "Service", "sglr-operator")["spec"]

    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True


def test_a_budget_is_made_only_where_it_does_not_block_a_node() -> None:
    """With one replica nothing could ever be evicted."""
    small = render({"router": {"replicas": 1}})
    large = render({"router": {"replicas": 3}, "operator": {"replicas": 2}})

    assert not [o for o in small if o["kind"] == "PodDisruptionBudget"]
    assert {o["metadata"]["name"] for o in large if o["kind"] == "PodDisruptionBudget"} == {
        "sglr-operator",
        "sglr-router",
    }


def test_changed_settings_restart_the_pods_that_read_them_at_their_start() -> None:
    """The pod template's checksum follows what the parts are told."""

    def checksum(values: dict[str, Any]) -> str:
        template = one(render(values), "Deployment", "sglr-router")["spec"]["template"]
        found: str = template["metadata"]["annotations"]["checksum/settings"]
        return found

    assert checksum({}) == checksum({"demo": {"enabled": True}})
    assert checksum({}) != checksum({"push": {"audience": "other"}})


def test_an_autoscaled_router_has_no_replicas_of_its_own() -> None:
    """Helm and the autoscaler would fight over the number at every upgrade."""
    scaled = render({"router": {"autoscaling": {"enabled": True}}})

    assert "replicas" not in one(scaled, "Deployment", "sglr-router")["spec"]
    assert one(scaled, "HorizontalPodAutoscaler", "sglr-router")["spec"]["metrics"] == [
        {
            "type": "Resource",
            "resource": {
                "name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 70},
            },
        }
    ]


def test_without_a_copy_there_is_nothing_of_it() -> None:
    """No flag, no right, no ConfigMap, no mount."""
    objects = render({"push": {"keepCopy": False}})

    assert not operator_arguments(objects).keep_copy
    assert router_arguments(objects).last_known_good_copy is None
    assert one(objects, "Role", "sglr-operator-lease")["rules"] == rules("lease")
    assert not [o for o in objects if o["metadata"]["name"] == "sglr-last-known-good"]


def test_the_copy_is_where_the_operator_writes_it() -> None:
    """Name and key are the operator's own, and a router starts without it, too."""
    objects = render()
    router = one(objects, "Deployment", "sglr-router")["spec"]["template"]["spec"]

    (volume,) = (v for v in router["volumes"] if v["name"] == "copy")
    assert volume["configMap"] == {"name": CopyConfig().name, "optional": True}
    assert router_arguments(objects).last_known_good_copy.name == keeper.FIELD
    assert one(objects, "ConfigMap", CopyConfig().name)


def test_callers_keys_come_from_a_secret_that_may_change() -> None:
    """Mounted as a folder, because a single file would stay as it was."""
    objects = render(
        {"router": {"apiKeys": {"secretName": "callers"}, "corsOrigins": ["https://a"]}}
    )
    arguments = router_arguments(objects)
    router = one(objects, "Deployment", "sglr-router")["spec"]["template"]["spec"]
    (mount,) = (m for m in router["containers"][0]["volumeMounts"] if m["name"] == "keys")
    (volume,) = (v for v in router["volumes"] if v["name"] == "keys")

    assert arguments.keys_file == "/etc/sglr/keys/keys.yaml"
    assert arguments.cors_origin == ["https://a"]
    assert volume["secret"]["secretName"] == "callers"
    assert "subPath" not in mount


def test_with_tls_everyone_who_asks_speaks_it() -> None:
    """Routers serve the Secret's certificate; probes, scrapes, Ingress and test follow."""
    values = {**EVERYTHING} | {
        "router": {
            "tls": {"secretName": "front"},
            "ingress": {"enabled": True, "hosts": ["a.example.com"]},
        }
    }
    objects = render(values)
    arguments = router_arguments(objects)
    first = container(objects, "sglr-router")
    ingress = one(objects, "Ingress", "sglr-router")["metadata"]["annotations"]

    assert arguments.tls_certificate == "/etc/sglr/tls/tls.crt"
    assert arguments.tls_key == "/etc/sglr/tls/tls.key"
    assert {first[p]["httpGet"]["scheme"] for p in ("livenessProbe", "readinessProbe")} == {"HTTPS"}
    assert ingress["nginx.ingress.kubernetes.io/backend-protocol"] == "HTTPS"
    assert (
        one(objects, "ServiceMonitor", "sglr-router")["spec"]["endpoints"][0]["scheme"] == "https"
    )
    assert one(objects, "Pod", "sglr-test")["spec"]["containers"][0]["args"][1].startswith("https:")


def test_the_admin_port_stays_inside_the_pod() -> None:
    """It listens on loopback and is no port of the container or the Service."""
    objects = render()
    arguments = router_arguments(objects)

    assert arguments.admin_port == 8081
    assert arguments.admin_host is None
    service = one(objects, "Service", "sglr-router")["spec"]["ports"]
    assert [port["targetPort"] for port in service] == ["http"]


def test_inference_v1_is_served_where_it_is_asked_for() -> None:
    """On the pod, on the Service and through the network policy; by default nowhere."""
    objects = render({"router": {"grpc": {"enabled": True}}, "networkPolicy": {"enabled": True}})
    router = container(objects, "sglr-router")
    service = one(objects, "Service", "sglr-router")
    policy = one(objects, "NetworkPolicy", "sglr-router")

    assert "--grpc-port=50051" in router["args"]
    assert {"name": "grpc", "containerPort": 50051} in router["ports"]
    assert [port["port"] for port in service["spec"]["ports"]] == [80, 50051]
    assert {"protocol": "TCP", "port": 50051} in policy["spec"]["ingress"][0]["ports"]
    assert "50051" not in str(render())


def test_the_limits_of_requests_are_flags_of_the_router() -> None:
    """As sglr serve spells them, and within what it takes."""
    told = router_arguments(render({"router": {"maxBodyBytes": 2048, "maxHeaderBytes": 1048576}}))

    assert (told.max_body_bytes, told.max_header_bytes) == (2048, 1048576)
    assert router_arguments(render()).max_header_bytes == 65536


def test_processes_and_keepalive_are_flags_of_the_router() -> None:
    """As sglr serve spells them."""
    args = container(render({"router": {"processes": 4, "keepalive": "1m"}}), "sglr-router")["args"]

    assert {"--processes=4", "--keepalive=60s"} <= set(args)
