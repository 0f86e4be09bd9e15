"""draftmill: generates training data for an EAGLE-3 drafter on an SGLang host.

Everything here runs on the host with the GPUs, or is pure logic. It never imports Airflow, supports Python 3.10 to 3.13 and uses
only what an SGLang installation already has.
"""

__version__ = "0.1.0"
