"""The rows of a Delta table as an Arrow dataset, read by Arrow's own threads."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltalake import DeltaTable


def dataset_of(table: "DeltaTable") -> Any:
    """Return the rows of a table as a `pyarrow.dataset.Dataset`.

    By default delta-rs lets Arrow read through a file system in Python. Arrow reads ahead in threads of C++, and one
    that enters Python while the interpreter shuts down ends the process with "terminate called without an active
    exception", or leaves it waiting forever. Arrow's own file system never enters Python.

    Args:
        table: A table on a local file system.
    """
    from pyarrow.fs import FileSystem, SubTreeFileSystem

    filesystem, path = FileSystem.from_uri(table.table_uri)
    return table.to_pyarrow_dataset(filesystem=SubTreeFileSystem(path, filesystem))
