"""The API in Python: generated messages (`*_pb2`), and helpers without side effects that several components use.

resources.py is the table over which the server, clients and the CLI are generic. codec.py, manifest.py and documents.py convert
JSON and YAML. wire.py assembles encoded messages. status.py and fences.py define conventions of calls.
"""
