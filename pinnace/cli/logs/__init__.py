"""What was logged, as it comes.

pods.py   what containers write, asked of the server
files.py  a log file on this machine: its end, and what is added to it
"""
