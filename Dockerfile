# whatelse serve: slim, non-root, dependencies by hash. Runs with a read-only root file system (compose.yaml).
# The lock file is for Python 3.11 on linux x86_64; renew it with scripts/lock.py for another platform.
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
COPY requirements-serve.txt /tmp/
RUN pip install --no-cache-dir --require-hashes -r /tmp/requirements-serve.txt && rm /tmp/requirements-serve.txt
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/*.whl && rm -r /wheels \
 && useradd --system --uid 10001 --no-create-home whatelse \
 && install -d -o whatelse -m 0700 /data
ENV NUMBA_CACHE_DIR=/tmp/numba MPLCONFIGDIR=/tmp/matplotlib PYTHONUNBUFFERED=1
USER 10001
VOLUME /data
WORKDIR /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-c", \
  "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=3)"]
ENTRYPOINT ["whatelse", "serve", "--config", "/etc/whatelse/serve.yaml", "--host", "0.0.0.0", "--port", "8000"]
