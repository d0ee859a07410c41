"""The shape of a job as the CWAI contract's table has it."""

from __future__ import annotations

from typing import Any

YAML = {"metadata": {"creationTimestamp": None}, "spec": {"containers": None}, "status": {}}

OUTPUT = dict.fromkeys(
    (
        "storageType",
        "zosBucket",
        "zosEndpoint",
        "accessKeyID",
        "accessKeySecret",
        "mountDir",
        "sfsUUID",
        "hpfsID",
        "sfsSize",
        "hpfsSharePath",
        "pvcName",
    ),
    str,
)
POD = {
    "role": str,
    "name": str,
    "restartCount": int,
    "podIP": str,
    "hostIP": str,
    "yaml": None,
    "containerNames": [str],
    "startTime": str,
    "finishTime": str,
    "status": str,
}
RETURN_OBJ: dict[str, Any] = {
    "name": str,
    "jobID": str,
    "userID": str,
    "accountID": str,
    "regionID": str,
    "azName": str,
    "resourceGroupID": str,
    "resourceGroupName": str,
    "queueID": str,
    "queueName": str,
    "trainType": str,
    "trainFrame": str,
    "jobOperator": str,
    "isDeepspeed": bool,
    "datasets": [{"name": str, "datasetID": str, "mountPath": str}],
    "imageName": str,
    "imageVersion": str,
    "command": [str],
    "envs": [{"name": str, "value": str}],
    "replicas": int,
    "resources": {"cpuLimit": int, "gpuLimit": int, "memLimit": int, "hcaShared": int},
    "output": OUTPUT,
    "logOutput": OUTPUT,
    "comment": str,
    "pods": [POD],
    "status": str,
    "createTime": str,
    "finishTime": str,
}
"""The contract's table: every key and its type; None for yaml, the one place where null may be."""


def assert_shape(value: Any, wanted: Any = RETURN_OBJ, path: str = "returnObj") -> None:
    """Every key is there, no other is, and each value has exactly its type."""
    match wanted:
        case dict():
            assert isinstance(value, dict), path
            assert list(value) == list(wanted), path  # pyright: ignore[reportUnknownArgumentType]
            for key, kind in wanted.items():  # pyright: ignore[reportUnknownVariableType]
                assert_shape(value[key], kind, f"{path}.{key}")
        case [kind]:
            assert isinstance(value, list), path
            for each in value:  # pyright: ignore[reportUnknownVariableType]
                assert_shape(each, kind, f"{path}[]")
        case None:
            assert isinstance(value, dict), path
        case _:
            assert type(value) is wanted, path
