"""Who asks, what they may do, and whose things they may see: as for tokens, which live below the web side."""

from duly.domain.principal import INCLUDES, Principal, Scope

__all__ = ["INCLUDES", "Principal", "Scope"]
