"""The Airflow side of draftmill, thin: remote-job operator and trigger, SSH host, code delivery, retry policy."""
