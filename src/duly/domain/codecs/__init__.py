"""How values of each type hint become JSON and come back. `signature.py` asks `hints.codec_for`.

Checks are strict: True is no int, "1" is no int, an instance of a subclass is no such record (it would come
back as less), and what a union would bring back as another type is refused. Only an int is also a float.
"""
