"""What a candidate tree is and which one to use; knows no model.

Imports: no other room.
"""
