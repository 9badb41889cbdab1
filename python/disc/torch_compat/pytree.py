"""Nested lists, tuples, dictionaries and registered classes as flat lists: ``torch.utils._pytree``.

PyTorch documents ``torch.utils._pytree.register_pytree_node`` for users, but the module is private.
"""

from __future__ import annotations

# The registered classes: which attributes an object of a user's class is made of.
from torch.utils._pytree import SUPPORTED_NODES as SUPPORTED_NODES

# Parts of the path to a leaf: an attribute, a key, an index.
from torch.utils._pytree import GetAttrKey as GetAttrKey
from torch.utils._pytree import MappingKey as MappingKey
from torch.utils._pytree import SequenceKey as SequenceKey

# The structure without the leaves; saved with a compiled model and compared at each call.
from torch.utils._pytree import TreeSpec as TreeSpec

# The type under which an object is registered: namedtuples have one in common.
from torch.utils._pytree import _get_node_type as node_type

# A path as text, for messages and the names of arguments.
from torch.utils._pytree import keystr as keystr

# DISC's own classes of trees and caches are registered.
from torch.utils._pytree import register_pytree_node as register_pytree_node

# Arguments and results to flat lists of tensors and back.
from torch.utils._pytree import tree_flatten as tree_flatten
from torch.utils._pytree import tree_flatten_with_path as tree_flatten_with_path
from torch.utils._pytree import tree_leaves as tree_leaves
from torch.utils._pytree import tree_map as tree_map
from torch.utils._pytree import tree_map_only as tree_map_only
from torch.utils._pytree import tree_map_with_path as tree_map_with_path
from torch.utils._pytree import tree_unflatten as tree_unflatten

__all__ = [
    "SUPPORTED_NODES",
    "GetAttrKey",
    "MappingKey",
    "SequenceKey",
    "TreeSpec",
    "keystr",
    "node_type",
    "register_pytree_node",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_map",
    "tree_map_only",
    "tree_map_with_path",
    "tree_unflatten",
]
