"""A description without its secrets, before anything is stored, hashed or logged.

An append-only log cannot forget, so no secret may enter it. What is left says that there was one:

===================  ===============================================================================
accessKeySecret      the mask if one was given
accessKeyID          the first 4 and the last 3 characters
envs                 the mask, if the variable's name is a secret's; else its text, see ``secrecy``
command              each argument, see ``secrecy``, and the one after ``--x-token``
pods[].yaml          the same, at every depth: members and ``{name, value}`` pairs with secret names,
                     lists of arguments, text, JSON inside text
all other text       without credentials in URLs
===================  ===============================================================================

What comes in masked (a console sends back what it was shown) means "not given": such a place shows what the
job's present state shows there, see :func:`fill_kept`. Masking is idempotent, and a changed secret alone
changes nothing: a retry is told from a conflict by what :func:`mask` returns, before :func:`fill_kept`.
"""

from __future__ import annotations

import re
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from jobledger.model import cwai, jsontext, secrecy, treemask

SHORT_KEY_ID_LENGTH = 12
"""An accessKeyID of fewer characters is hidden as a whole: 7 of them would be most of it."""

Place: TypeAlias = "tuple[str, str | int]"
"""Where a value of mask shape came in: output or log_output and the field, or envs and the index."""

_MASKED_KEY_ID = re.compile(r"(?:.{4}\*{4}.{3}|\*{4})", re.DOTALL)
_Shape = TypeVar("_Shape", bound=msgspec.Struct)


class Masked(msgspec.Struct, frozen=True, kw_only=True):
    """A description without secrets, and where it came in masked."""

    detail: cwai.Detail
    kept: frozenset[Place]
    """Places that mean "not given"; empty for a publisher that knows its secrets."""


def mask_and_write(given: cwai.Detail) -> tuple[Masked, str]:
    """The description without its secrets, and the one text of it that is stored.

    Whatever :func:`mask` looks for stands in that text as it stands in the description: what JSON escapes is
    no part of it. So one look at the text is enough for the many that hold nothing.
    """
    written = jsontext.write(given)
    if not secrecy.may_hold_secret(written) and "@" not in written:
        return Masked(detail=given, kept=frozenset()), written
    masked = mask(given)
    return masked, jsontext.write(masked.detail)


def mask(given: cwai.Detail) -> Masked:
    """The description without its secrets; equal for descriptions that differ in masked secrets alone."""
    return Masked(
        detail=msgspec.structs.replace(
            _without_url_credentials(given),
            image_name=_image(given.image_name),
            datasets=_each(given.datasets),
            command=_command(given.command),
            envs=_envs(given.envs),
            output=_output(given.output),
            log_output=_output(given.log_output),
            pods=_pods(given.pods),
        ),
        kept=frozenset(
            (
                *_kept_output("output", given.output),
                *_kept_output("log_output", given.log_output),
                *_kept_envs(given.envs),
            )
        ),
    )


def fill_kept(masked: Masked, present: cwai.Detail | None) -> cwai.Detail:
    """The description with every place that came in masked as the present state shows it.

    Where the present state shows nothing, or there is none, the place is not given: a mask without a secret
    behind it would claim one. Environment variables are found by name. Masks inside text stay: what the
    present state would show there is the same mask.
    """
    if not masked.kept:
        return masked.detail
    described = masked.detail
    return msgspec.structs.replace(
        described,
        output=_filled_output("output", masked, described.output, present.output if present else UNSET),
        log_output=_filled_output(
            "log_output", masked, described.log_output, present.log_output if present else UNSET
        ),
        envs=_filled_envs(masked, present.envs if present else UNSET),
    )


def _kept_output(name: str, output: cwai.Output | UnsetType) -> list[Place]:
    if not isinstance(output, cwai.Output):
        return []
    kept: list[Place] = []
    if output.access_key_secret == secrecy.MASK:
        kept.append((name, "access_key_secret"))
    if isinstance(output.access_key_id, str) and _MASKED_KEY_ID.fullmatch(output.access_key_id):
        kept.append((name, "access_key_id"))
    return kept


def _kept_envs(envs: tuple[cwai.Env, ...] | UnsetType) -> list[Place]:
    return [
        ("envs", at)
        for at, env in enumerate(envs or ())
        if env.value == secrecy.MASK and isinstance(env.name, str) and secrecy.names_secret(env.name)
    ]


def _filled_output(
    name: str, masked: Masked, output: cwai.Output | UnsetType, present: cwai.Output | UnsetType
) -> cwai.Output | UnsetType:
    kept = [field for place, field in masked.kept if place == name and isinstance(field, str)]
    if not isinstance(output, cwai.Output) or not kept:
        return output
    shown = {field: getattr(present, field) if present else UNSET for field in kept}
    return msgspec.structs.replace(output, **shown)


def _filled_envs(
    masked: Masked, present: tuple[cwai.Env, ...] | UnsetType
) -> tuple[cwai.Env, ...] | UnsetType:
    envs = masked.detail.envs
    if not isinstance(envs, tuple):
        return envs
    shown = {env.name: env.value for env in present or ()}
    return tuple(
        msgspec.structs.replace(env, value=shown.get(env.name, UNSET)) if ("envs", at) in masked.kept else env
        for at, env in enumerate(envs)
    )


def _without_url_credentials(shape: _Shape) -> _Shape:
    """The shape with every text of its own, not of what it holds, without credentials in URLs."""
    changed = {
        name: secrecy.in_url(value)
        for name in shape.__struct_fields__
        if isinstance(value := getattr(shape, name), str) and "://" in value
    }
    return msgspec.structs.replace(shape, **changed) if changed else shape


def _each(shapes: tuple[_Shape, ...] | UnsetType) -> tuple[_Shape, ...] | UnsetType:
    return tuple(_without_url_credentials(shape) for shape in shapes) if isinstance(shapes, tuple) else shapes


def _image(name: str | UnsetType) -> str | UnsetType:
    return secrecy.in_image(name) if isinstance(name, str) else name


def _command(command: tuple[str, ...] | UnsetType) -> tuple[str, ...] | UnsetType:
    return tuple(treemask.masked_arguments(list(command))) if isinstance(command, tuple) else command


def _envs(envs: tuple[cwai.Env, ...] | UnsetType) -> tuple[cwai.Env, ...] | UnsetType:
    return tuple(map(_env, envs)) if isinstance(envs, tuple) else envs


def _env(env: cwai.Env) -> cwai.Env:
    if isinstance(env.name, str) and secrecy.names_secret(env.name):
        value = secrecy.MASK if env.value else env.value
    else:
        value = treemask.masked_text(env.value) if isinstance(env.value, str) else env.value
    name = treemask.masked_text(env.name) if isinstance(env.name, str) else env.name
    return env if (name, value) == (env.name, env.value) else cwai.Env(name=name, value=value)


def _output(output: cwai.Output | UnsetType) -> cwai.Output | UnsetType:
    if not isinstance(output, cwai.Output):
        return output
    key_id, endpoint = output.access_key_id, output.zos_endpoint
    return msgspec.structs.replace(
        _without_url_credentials(output),
        access_key_secret=secrecy.MASK if output.access_key_secret else UNSET,
        access_key_id=_key_id(key_id) if isinstance(key_id, str) else key_id,
        zos_endpoint=secrecy.in_text(secrecy.in_endpoint(endpoint))
        if isinstance(endpoint, str)
        else endpoint,
    )


def _key_id(key_id: str) -> str:
    if not key_id or _MASKED_KEY_ID.fullmatch(key_id):
        return key_id
    return "****" if len(key_id) < SHORT_KEY_ID_LENGTH else f"{key_id[:4]}****{key_id[-3:]}"


def _pods(pods: tuple[cwai.Pod, ...] | UnsetType) -> tuple[cwai.Pod, ...] | UnsetType:
    return tuple(map(_pod, pods)) if isinstance(pods, tuple) else pods


def _pod(pod: cwai.Pod) -> cwai.Pod:
    pod = _without_url_credentials(pod)
    if not isinstance(pod.yaml, msgspec.Raw):
        return pod
    given = jsontext.read(bytes(pod.yaml).decode(), "detail.pods[].yaml")
    masked = treemask.masked(given)
    if masked == given:
        return pod
    return msgspec.structs.replace(pod, yaml=msgspec.Raw(jsontext.write(masked).encode()))
