# JobLedger in a container: `jobledger serve` as an ordinary user, with nothing but Python around it.
#
#   docker build -t jobledger .
#
# Nothing here needs BuildKit. Another base image: --build-arg PYTHON_IMAGE=python:3.12-slim
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
WORKDIR /source
ENV PIP_CONSTRAINT=/source/constraints.txt \
    PIP_BUILD_CONSTRAINT=/source/constraints.txt \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
# At the path that it has in the end: scripts of a virtual environment name their interpreter by it.
RUN python -m venv /opt/jobledger
# The dependencies first, by an empty package of the same needs: an edited source does not install them again.
COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN mkdir -p service/jobledger migrations \
    && echo '__version__ = "0"' > service/jobledger/__init__.py \
    && /opt/jobledger/bin/pip install --quiet '.[server]'
COPY service service
COPY migrations migrations
RUN /opt/jobledger/bin/pip wheel --quiet --no-deps --wheel-dir /wheel . \
    && /opt/jobledger/bin/pip install --quiet --no-deps --force-reinstall /wheel/*.whl \
    && /opt/jobledger/bin/pip uninstall --quiet --yes pip

FROM ${PYTHON_IMAGE}
# A number, so that Kubernetes' runAsNonRoot can tell. The directories are where compose puts passwords: a new
# volume takes over its owner.
RUN groupadd --gid 10001 jobledger \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin jobledger \
    && install -d -o 10001 -g 10001 -m 0755 /run/jobledger/owner /run/jobledger/app
COPY --from=build /opt/jobledger /opt/jobledger
ENV PATH=/opt/jobledger/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    JOBLEDGER_HOST=0.0.0.0 \
    JOBLEDGER_LOG_FORMAT=json
USER 10001:10001
WORKDIR /
EXPOSE 8899 8080
STOPSIGNAL SIGTERM
# Alive, not ready: a container is not to be replaced because Postgres is away.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-S", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ.get('JOBLEDGER_HTTP_PORT', '8080') + '/healthz', timeout=4)"]
ENTRYPOINT ["jobledger"]
CMD ["serve", "--json"]
