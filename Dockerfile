# Two images of one wheel: `service`, and `executor` for Spark's drivers and executors.
#
#   make image PYTHON_DIGEST=sha256:...    # or by hand:
#   docker build --target service --build-arg VERSION=0.1.0 --build-arg PYTHON_DIGEST=sha256:... -t unskew:0.1.0 .
#
# Bases are named by tag and digest, and a build without the digest stops: a tag may be another image tomorrow. No digest is
# written here, since one that nobody renews is a base without its security fixes (docs/decisions/0022-image.md).
ARG PYTHON_IMAGE=python:3.13-slim-bookworm
ARG PYTHON_DIGEST
ARG SPARK_IMAGE=apache/spark:4.1.2-scala2.13-java17-python3-ubuntu
# Engines read the names of all stages, used or not, so this one has a value that no image has.
ARG SPARK_DIGEST=sha256:0000000000000000000000000000000000000000000000000000000000000000

# -- the wheel, of the sources alone ------------------------------------------------------------------------------
FROM ${PYTHON_IMAGE}@${PYTHON_DIGEST} AS wheel
WORKDIR /src
COPY requirements/build.txt requirements/
RUN python3 -m venv /opt/build \
    && /opt/build/bin/python -m pip install --require-hashes --requirement requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY core core
COPY simulate simulate
COPY proto proto
COPY client client
COPY service service
COPY spark_integration spark_integration
COPY cli cli
RUN /opt/build/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir /dist .

# -- what the service needs, in one folder: no pip or setuptools in it, no tests, no headers ------------------------------
FROM ${PYTHON_IMAGE}@${PYTHON_DIGEST} AS environment
ARG VERSION
COPY requirements/service.txt /src/
COPY --from=wheel /dist /dist
# Others' packages by their hashes, then ours, which must find all that it needs there.
RUN python3 -m venv /opt/unskew \
    && /opt/unskew/bin/python -m pip install --require-hashes --requirement /src/service.txt \
    && /opt/unskew/bin/python -m pip install --no-index \
        "unskew[service,telemetry] @ file://$(ls /dist/*.whl)" \
    && /opt/unskew/bin/python -m pip uninstall --yes pip setuptools \
    && find /opt/unskew/lib -depth -type d \( -name tests -o -path '*/pyarrow/include' \) -exec rm -r {} +
# The label must not say another version than the program.
RUN test "$(/opt/unskew/bin/unskew --version)" = "unskew ${VERSION:?give --build-arg VERSION=}"
# numba keeps machine code by CPU, and the builder's is not the node's: generic fits any CPU of this architecture.
ENV NUMBA_CPU_NAME=generic
RUN /opt/unskew/bin/python -m unskew.service.app.kernels

# -- the service ------------------------------------------------------------------------------------------------------
FROM ${PYTHON_IMAGE}@${PYTHON_DIGEST} AS service
ARG PYTHON_IMAGE
ARG PYTHON_DIGEST
ARG VERSION
ARG REVISION=unknown
# The base's own pip goes too: nothing is installed in a container that runs. (It stays in a layer below; what counts is
# that nobody can call it, and that scanners do not report it.)
RUN groupadd --gid 10001 unskew \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin unskew \
    && rm -rf /usr/local/bin/pip* /usr/local/lib/python3*/ensurepip /usr/local/lib/python3*/site-packages/pip*
COPY --from=environment /opt/unskew /opt/unskew
# The root may be read-only; /tmp is all that is written to. UNSKEW_HOST stays loopback on purpose: on 0.0.0.0 the service
# wants tokens or client certificates, and whoever runs it says which.
ENV PATH=/opt/unskew/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CPU_NAME=generic \
    NUMBA_CACHE_DIR=/tmp/unskew-kernels
LABEL org.opencontainers.image.title="unskew" \
      org.opencontainers.image.description="Skew-free partitioning for Spark: the service" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}" \
      org.opencontainers.image.base.digest="${PYTHON_DIGEST}"
# By number, so that Kubernetes can tell that it is not root.
USER 10001:10001
EXPOSE 8080 8081 8082
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s CMD ["python", "-m", "unskew.service.app.probe"]
# No init process: unskew handles SIGTERM itself as process 1, and starts no other process that could become a zombie.
ENTRYPOINT ["unskew"]
CMD ["serve"]

# -- Spark's drivers and executors -----------------------------------------------------------------------------------------
# The official Spark image, which has Java and PySpark: installing pyspark beside it would put a second Spark in it. pandas is
# what PySpark's own pandas functions need; `fast` compiles what tasks learn. Its entrypoint, user and folders stay.
FROM ${SPARK_IMAGE}@${SPARK_DIGEST} AS executor
ARG SPARK_IMAGE
ARG SPARK_DIGEST
ARG VERSION
ARG REVISION=unknown
USER 0
COPY requirements/executor.txt /opt/unskew/
COPY --from=wheel /dist /opt/unskew/dist
ENV NUMBA_CPU_NAME=generic \
    NUMBA_CACHE_DIR=/opt/unskew/kernels
RUN export PIP_BREAK_SYSTEM_PACKAGES=1 \
    && python3 -m pip install --no-cache-dir --require-hashes --requirement /opt/unskew/executor.txt \
    && python3 -m pip install --no-cache-dir --no-index \
        "unskew[fast] @ file://$(ls /opt/unskew/dist/*.whl)" \
    && test "$(python3 -c 'from unskew.core.version import __version__ as v; print(v)')" = "${VERSION:?give --build-arg VERSION=}" \
    && python3 -m unskew.service.app.kernels /opt/unskew/kernels \
    && chown -R 185:185 /opt/unskew/kernels
LABEL org.opencontainers.image.title="unskew-executor" \
      org.opencontainers.image.description="Skew-free partitioning for Spark: drivers and executors" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${SPARK_IMAGE}" \
      org.opencontainers.image.base.digest="${SPARK_DIGEST}"
USER 185

# -- what a build without --target gives: the service ----------------------------------------------------------------------
FROM service
