"""Alerts. Thresholds (`settings`), what is looked at (`rules`), who looks (`evaluate`), who is told (`deliver`)."""
