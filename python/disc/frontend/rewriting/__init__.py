"""Control flow in ordinary Python: functions rewritten so that their conditions and loops can be traced."""
