"""The API in Python: the generated messages (`*_pb2`), and pure helpers that several components need.

resources.py is the table over which server, client and CLI are generic; codec.py, manifest.py and documents.py read and write
JSON and YAML; wire.py handles messages as bytes; status.py and fences.py are the conventions of calls.
"""
