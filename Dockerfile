# The Airflow image of this deployment: the official one, with exactly the packages of requirements.txt.
# The same file makes the development environment (`make setup`), so both run the same versions.
FROM apache/airflow:3.3.2-python3.12

# No constraints file: requirements.txt pins every package, transitive ones and apache-airflow itself included.
COPY requirements.txt /requirements.txt
RUN pip install --no-cache-dir --requirement /requirements.txt

# Code and configuration are mounted by docker-compose.yaml, so that adding a campaign needs no build.
ENV PYTHONPATH=/opt/airflow/include
