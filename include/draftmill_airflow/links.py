"""Links from a task to what it works on at the host. They are sftp addresses: a file manager or a browser with a handler opens them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink
from pydantic import ValidationError

from draftmill_airflow.errors import HostSettingsError
from draftmill_airflow.host import Host
from draftmill_airflow.order import Order

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


def sftp_url(address: str, path: str) -> str:
    """The address of a file or folder. A path below the user's home keeps its `~`, as in sftp://me@host/~/draftmill."""
    return f"sftp://{address}/{quote(path.lstrip('/'), safe='/~')}"


def _url(operator: Any, path_of: Callable[[Order, Host], str]) -> str:
    try:
        order = Order.model_validate(operator.order, strict=False)
        host = Host.load(order.conn_id)
    except (ValidationError, HostSettingsError):
        return ""  # the task itself says what is wrong
    path = path_of(order, host)
    return sftp_url(host.address, path) if path else ""


class CampaignFolderLink(BaseOperatorLink):
    """The campaign's folder on the host."""

    name = "Campaign folder"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """An sftp address, or nothing where the connection is not usable."""
        return _url(operator, lambda order, host: str(order.folder(host.workspace).root))


class JournalLink(BaseOperatorLink):
    """The journal of the task's data set; nothing for a task of the whole campaign."""

    name = "Journal"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """An sftp address, or nothing."""
        dataset = getattr(operator, "dataset", None)
        return _url(operator, lambda order, host: str(order.folder(host.workspace).journal(dataset)) if dataset else "")
