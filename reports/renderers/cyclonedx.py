"""CycloneDX 1.6: a bill of materials of the audited model, with its card and what the audit declares of it.

ECMA-424, https://cyclonedx.org/docs/1.6/json/. The card has measured accuracy, limits and risks; the declarations
have one claim a finding: what was demonstrated are counter-claims.
"""

import json
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar

from fedaudit.reports.document import Document
from fedaudit.reports.renderer import Renderer
from fedaudit.reports.result import AuditResult, Finding

MODEL, ASSESSOR = "model", "assessor"


class Cyclonedx(Renderer):
    suffix: ClassVar[str] = "cdx.json"

    def render(self, document: Document) -> bytes:
        result = document.result
        made = result.reproduction
        libraries = {k: v for k, v in made.versions.items() if v != "not installed"}
        key = result.seal.content if result.seal else json.dumps(made.hashes, sort_keys=True)
        bom: dict[str, Any] = {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'fedaudit {key}')}",
            "version": 1,
            "metadata": {
                "timestamp": document.created.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "tools": {"components": [_library("fedaudit", libraries.get("fedaudit", "unknown"))]},
                "component": _model(result),
            },
            "components": [_library(name, version) for name, version in libraries.items()],
            "declarations": _declarations(result),
        }
        return json.dumps(bom, indent=1, ensure_ascii=False).encode() + b"\n"


def _library(name: str, version: str) -> dict[str, str]:
    return {"type": "library", "name": name, "version": version}


def _model(result: AuditResult) -> dict[str, Any]:
    scope, seal = result.scope, result.seal
    metrics = [
        {"type": name, "value": f"{value:.6g}"}
        for name, value in result.summary_metrics.items()
        if value is not None
    ]
    demonstrated = [f for f in result.findings if f.is_demonstrated]
    model: dict[str, Any] = {
        "type": "machine-learning-model",
        "bom-ref": MODEL,
        "name": scope.model,
        "description": f"{scope.model} trained by {scope.method} on {scope.dataset} with {scope.clients} clients",
        "modelCard": {
            "modelParameters": {
                "approach": {"type": "supervised"},
                "task": "classification",
                "modelArchitecture": scope.model,
                "datasets": [{"type": "dataset", "name": scope.dataset, "description": scope.dataset_text}],
            },
            "quantitativeAnalysis": {"performanceMetrics": metrics},
            "considerations": {
                "technicalLimitations": list(result.limits),
                "ethicalConsiderations": [
                    {"name": f.title, "mitigationStrategy": f.remedy} for f in demonstrated
                ],
            },
        },
    }
    if seal is not None:
        model["hashes"] = [{"alg": "SHA-256", "content": seal.digests[seal.model]}]
    return model


def _declarations(result: AuditResult) -> dict[str, Any]:
    shown = [f for f in result.findings if f.is_demonstrated]
    return {
        "assessors": [{"bom-ref": ASSESSOR, "thirdParty": False}],
        "attestations": [
            {
                "summary": result.decision.line if result.decision else result.headline.sentence,
                "assessor": ASSESSOR,
                "map": [{"claims": [], "counterClaims": [_ref("claim", f) for f in shown]}],
            }
        ],
        "claims": [
            {
                "bom-ref": _ref("claim", f),
                "target": MODEL,
                "predicate": f.title,
                "reasoning": f.reason,
                "evidence": [_ref("evidence", f)],
            }
            for f in shown
        ],
        "evidence": [
            {
                "bom-ref": _ref("evidence", f),
                "propertyName": f"fedaudit:{f.source}:{f.id}",
                "description": f.summary,
                "data": [{"name": "audit.json", "contents": {"url": "audit.json"}}],
            }
            for f in shown
        ],
    }


def _refs(what: str, findings: Sequence[Finding]) -> list[str]:
    return [_ref(what, f) for f in findings]


def _ref(what: str, finding: Finding) -> str:
    return f"{what}:{finding.id}"
