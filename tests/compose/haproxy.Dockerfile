# A stand-in for the official HAProxy image where no container registry is reachable: Debian's package, started
# as the official image starts its own. It is 2.6, older than the tag in docker-compose.yml.
ARG PYTHON_IMAGE=python:3.13-slim
FROM ${PYTHON_IMAGE}
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends haproxy \
    && rm -rf /var/lib/apt/lists/*
USER haproxy
STOPSIGNAL SIGUSR1
CMD ["haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]
