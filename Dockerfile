# A collection over HTTP: docker build --tag crossbit . && docker run --help is in docs/install.md.
# All steps are in scripts/container-install, which `make container` tests without a container engine.
FROM python:3.13-slim-bookworm AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
ARG VERSION=
RUN VERSION="$VERSION" scripts/container-install /opt/crossbit

FROM python:3.13-slim-bookworm
RUN useradd --no-log-init --uid 10001 --create-home crossbit \
    && install --directory --owner=crossbit /collection /model /images
COPY --from=build /opt/crossbit /opt/crossbit
ENV PATH=/opt/crossbit/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001
WORKDIR /home/crossbit
VOLUME ["/collection", "/model", "/images"]
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["crossbit"]
# The service refuses to listen on all addresses of the container unless CROSSBIT_TOKEN is set.
CMD ["serve", "/collection", "--host", "0.0.0.0"]
