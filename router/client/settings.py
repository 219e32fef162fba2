"""Settings of a client: time limits, retries, bounds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc

from data.errors import SettingError
from router.channel_options import MESSAGE_BYTES


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How a client behaves towards its router.

    Attributes:
        deadline_s: Time limit of a question, retries included, unless the question has its own (above 0).
        report_deadline_s: Time limit of one delivery of outcomes (above 0).
        first_backoff_s: Pause before the first retry; it doubles each time, with jitter (above 0).
        most_backoff_s: Longest pause (at least ``first_backoff_s``).
        most_waiting_reports: Events kept while the router cannot be reached; beyond it the oldest go, counted
            (at least 1).
        message_bytes: Largest message; must be what the server has (at least 1,024).
    """

    deadline_s: float = 5.0
    report_deadline_s: float = 5.0
    first_backoff_s: float = 0.05
    most_backoff_s: float = 1.0
    most_waiting_reports: int = 10_000
    message_bytes: int = MESSAGE_BYTES

    def __post_init__(self) -> None:
        checks = (
            ("deadline_s", self.deadline_s > 0, "above 0"),
            ("report_deadline_s", self.report_deadline_s > 0, "above 0"),
            ("first_backoff_s", self.first_backoff_s > 0, "above 0"),
            ("most_backoff_s", self.most_backoff_s >= self.first_backoff_s, "at least first_backoff_s"),
            ("most_waiting_reports", self.most_waiting_reports >= 1, "1 or more"),
            ("message_bytes", self.message_bytes >= 1024, "1,024 or more"),
        )
        for name, ok, expected in checks:
            if not ok:
                value = getattr(self, name)
                raise SettingError("setting out of range", field=name, value=value, expected=expected)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the client is, and whom it trusts.

    Attributes:
        token: Bearer token; empty = none.
        ca_file: Certificates of the router's authority; ``None`` = a connection without TLS.
        certificate_file: The client's own certificate, for mutual TLS, with ``key_file``.
    """

    token: str = ""
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None

    def __repr__(self) -> str:
        """Without the token."""
        return f"Identity(token={'set' if self.token else 'none'}, ca_file={self.ca_file})"

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Headers of each call."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Credentials of the channel; ``None`` = without TLS.

        Raises:
            OSError: A file cannot be read.
        """
        if self.ca_file is None:
            return None
        own = self.certificate_file is not None and self.key_file is not None
        return grpc.ssl_channel_credentials(
            root_certificates=self.ca_file.read_bytes(),
            private_key=self.key_file.read_bytes() if own and self.key_file else None,
            certificate_chain=self.certificate_file.read_bytes() if own and self.certificate_file else None,
        )
