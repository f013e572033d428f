"""Monitoring, network policies, the demo, the notes and the test of a release."""

from __future__ import annotations

import argparse
import inspect
import json
import re
from importlib.resources import files as package_files

import pytest
import yaml
from prometheus_client import CollectorRegistry

from sglr_dataplane import sim
from sglr_dataplane.app import Router
from sglr_dataplane.cli import processes
from sglr_dataplane.config import RouterConfig
from sglr_dataplane.sim import command
from sglr_operator.metrics import Metrics
from support.charts import CHART, EVERYTHING, ROOT, Object, cluster, container, files, one, render


def known_metrics() -> set[str]:
    """Return the name of every series that operator and routers serve."""
    registry = CollectorRegistry()
    Metrics(registry)
    found: set[str] = set()
    for each in (registry, Router(RouterConfig()).metrics.registry):
        for family in each.collect():
            suffixes = {
                "counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"],
            }.get(family.type, [""])  # fmt: skip
            found |= {family.name + suffix for suffix in suffixes}
    # The supervisor of several processes counts in the registry of its own.
    return found | set(re.findall(r'"(sglr_[a-z_]+)"', inspect.getsource(processes)))


def used_metrics(text: str) -> set[str]:
    """Return the names of our metrics that *text* asks for."""
    return set(re.findall(r"\bsglr_[a-z_]+", text))


def test_every_alert_and_panel_asks_for_a_metric_that_exists() -> None:
    """A renamed metric breaks this test and not an alert in silence."""
    rule = one(render(EVERYTHING), "PrometheusRule", "sglr")
    rules = rule["spec"]["groups"][0]["rules"]
    dashboard = json.loads(
        one(render(EVERYTHING), "ConfigMap", "sglr-dashboard")["data"]["sglr.json"]
    )
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]

    used = used_metrics(" ".join([*(r["expr"] for r in rules), *panels]))

    assert used <= known_metrics()
    assert len(used) > 12


def test_scaling_by_keda_asks_for_metrics_that_exist() -> None:
    """The example's queries are about series that routers serve."""
    documents = list(yaml.safe_load_all((ROOT / "examples" / "keda.yaml").read_text()))
    queries = [t["metadata"]["query"] for d in documents for t in d["spec"]["triggers"]]

    assert len(queries) == 3
    assert used_metrics(" ".join(queries)) <= known_metrics()


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    """A person at three in the morning needs both, for this release's namespace alone."""
    rules = one(render(EVERYTHING), "PrometheusRule", "sglr")["spec"]["groups"][0]["rules"]

    assert len({rule["alert"] for rule in rules}) == len(rules) >= 8
    for rule in rules:
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert 'namespace="inference"' in rule["expr"]


def test_scrapes_find_the_port_that_serves_metrics() -> None:
    """Each ServiceMonitor selects one Service, and that has the port."""
    objects = render(EVERYTHING)
    services = [o for o in objects if o["kind"] == "Service"]

    for monitor in (o for o in objects if o["kind"] == "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        (service,) = (s for s in services if wanted <= s["metadata"]["labels"].items())
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["path"] == "/metrics"
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}


def peers(rules: list[Object]) -> list[tuple[list[int], bool]]:
    """Return each rule's ports, and whether it names peers."""
    return [
        ([port["port"] for port in rule["ports"]], "from" in rule or "to" in rule) for rule in rules
    ]


def test_policies_let_through_what_is_needed() -> None:
    """Routers reach DNS, the operator and workers; the operator DNS and the API server."""
    objects = render({"networkPolicy": {"enabled": True}})
    operator = one(objects, "NetworkPolicy", "sglr-operator")["spec"]
    router = one(objects, "NetworkPolicy", "sglr-router")["spec"]

    assert peers(operator["ingress"]) == [([9443], True), ([8081], False)]
    assert peers(operator["egress"]) == [([53, 53], False), ([443, 6443], False)]
    assert peers(router["ingress"]) == [([8080], False)]
    assert peers(router["egress"]) == [([53, 53], False), ([9443], True), ([30000], False)]


def test_policies_narrow_down_to_the_peers_given() -> None:
    """With peers named, nobody else may come, and scrapers still do."""
    router = one(render(EVERYTHING), "NetworkPolicy", "sglr-router")["spec"]
    operator = one(render(EVERYTHING), "NetworkPolicy", "sglr-operator")["spec"]

    assert peers(router["ingress"]) == [([8080, 50051], True), ([8080], True)]
    assert peers(router["egress"])[-1] == ([30000], True)
    assert peers(operator["egress"])[-1] == ([443, 6443], True)


def test_the_demo_s_workers_understand_their_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's own parser takes them, and the model they name is in the package."""
    first = container(render({"demo": {"enabled": True}}), "sglr-demo")
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)

    arguments = parser.parse_args(first["args"][1:])

    assert first["args"][0] == "sim-worker"
    assert (arguments.host, arguments.port) == ("0.0.0.0", 30000)
    inside = str(arguments.tokenizer).split("/dist-packages/")[1].split("/")
    assert inside[0] == sim.__name__.split(".")[0]
    assert package_files(inside[0]).joinpath(inside[1], "tokenizer.json").is_file()


def test_the_example_workers_are_those_of_the_example_backend() -> None:
    """Applied together they serve: model, namespace, Service and port fit, and others reach them."""
    folder = ROOT / "examples"
    deployment, service = yaml.safe_load_all((folder / "workers-simulated.yaml").read_text())
    backend = yaml.safe_load((folder / "backend-service.yaml").read_text())
    [worker] = deployment["spec"]["template"]["spec"]["containers"]
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    arguments = parser.parse_args(worker["args"])

    assert worker["command"] == ["sglr", "sim-worker"]
    assert (arguments.host, arguments.port) == ("0.0.0.0", 30000)
    assert arguments.model_name == backend["spec"]["model"]["name"]
    assert {each["metadata"]["namespace"] for each in (deployment, service, backend)} == {
        "inference"
    }
    assert backend["spec"]["workers"]["service"] == {
        "name": service["metadata"]["name"],
        "portName": service["spec"]["ports"][0]["name"],
    }
    assert "tokenizer" not in backend["spec"], "the workers send theirs"
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels == service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert service["spec"]["ports"][0]["targetPort"] == worker["ports"][0]["name"]
    assert worker["image"] == container(render({}), "sglr-router")["image"]


def test_the_notes_lead_to_a_chat() -> None:
    """Three commands, with this release's own names."""
    plain, demo = files()["NOTES.txt"], files({"demo": {"enabled": True}})["NOTES.txt"]

    assert "kubectl -n inference rollout status deployment/sglr-router" in plain
    assert "examples/backend-service.yaml" in plain
    assert (ROOT / "examples" / "backend-service.yaml").is_file()
    assert "wait --for=condition=Ready sglb/sglr-demo" in demo
    assert "port-forward service/sglr-router 8080:80" in demo


def test_the_notes_warn_where_rules_are_not_enforced(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Old API servers drop the CRD's rules in silence; no version is refused for that."""
    old = files(of=cluster(tmp_path_factory.mktemp("old"), "1.28", ["policy/v1"]))["NOTES.txt"]
    new = files(of=cluster(tmp_path_factory.mktemp("new"), "1.29", ["policy/v1"]))["NOTES.txt"]

    assert "does not enforce all rules" in old
    assert "WARNING" not in new
    assert "kubeVersion" not in yaml.safe_load((CHART / "Chart.yaml").read_text())


def test_helm_test_asks_the_router_and_the_demo() -> None:
    """The pod calls the router's Service, and chats where a demo answers."""
    plain = one(render(), "Pod", "sglr-test")["spec"]["containers"][0]
    demo = one(render({"demo": {"enabled": True}}), "Pod", "sglr-test")["spec"]["containers"][0]

    keyed = {"router": {"apiKeys": {"secretName": "k"}}, "demo": {"enabled": True}}
    assert plain["args"] == ["/test/chat_test.py", "http://sglr-router:80", "/v1/models"]
    assert one(render(keyed), "Pod", "sglr-test")["spec"]["containers"][0]["args"][2:] == [
        "/health"
    ]
    assert demo["args"] == [*plain["args"], "demo"]


def test_streams_pass_an_ingress_and_a_gateway_unbuffered() -> None:
    """No proxy holds tokens back or cuts an answer that takes long."""
    annotations = one(render(EVERYTHING), "Ingress", "sglr-router")["metadata"]["annotations"]
    route = one(render(EVERYTHING), "HTTPRoute", "sglr-router")["spec"]["rules"][0]

    assert annotations["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"
    assert int(annotations["nginx.ingress.kubernetes.io/proxy-read-timeout"]) >= 3600
    assert route["timeouts"] == {"request": "0s", "backendRequest": "0s"}
