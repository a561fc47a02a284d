"""What is done to the model's logits before a rule judges them: a penalty, then top-k, top-p and min-p.

Plain decoding and every method share it, and a rule sees nothing but the processed logits.
"""
