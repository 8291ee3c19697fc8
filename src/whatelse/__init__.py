"""Given this emergency visit and the conditions already confirmed, what else might the patient have?"""

__version__ = "0.1.0"
