# The connector:       docker build -t cdc-outbox --build-arg VERSION=v0.1.0 --build-arg COMMIT="$(git rev-parse HEAD)" .
# The sample service:  docker build -t cdc-outbox-orders --target orders .
# For consumers:       docker build -t cdc-outbox-idempotency --target cdc-outbox-idempotency .
# The demo:            docker build -t cdc-outbox-demo --target cdc-outbox-demo .
#
# It needs BuildKit, or buildah. Behind a company's proxy, with its module proxy, and with
# the authority that signs its certificates:
#
#   docker build -t cdc-outbox --build-arg GOPROXY=https://goproxy.example.com \
#     --build-arg GOSUMDB=off --secret id=ca,src=company-ca.pem .
#
# (HTTPS_PROXY is an argument of every build.) The authority is for the build alone.

# The builder runs on the build machine's platform and cross-compiles.
FROM --platform=$BUILDPLATFORM golang:1.26.5-alpine3.24 AS source
WORKDIR /src
ENV CGO_ENABLED=0 GOFLAGS=-trimpath
COPY . .

FROM source AS build
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
ARG COMMIT=unknown
ARG GOPROXY
ARG GOSUMDB
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/build-ca.pem \
    GOOS=$TARGETOS GOARCH=$TARGETARCH go build \
      -tags nethttpomithttp2,nopgxregisterdefaulttypes \
      -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT" \
      -o /out/cdc-outbox ./cmd/cdc-outbox

FROM source AS build-demo
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
ARG COMMIT=unknown
ARG GOPROXY
ARG GOSUMDB
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/build-ca.pem \
    GOOS=$TARGETOS GOARCH=$TARGETARCH go build \
      -tags nethttpomithttp2,nopgxregisterdefaulttypes \
      -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT" \
      -o /out/cdc-outbox-demo ./cmd/cdc-outbox-demo

FROM source AS build-idempotency
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
ARG COMMIT=unknown
ARG GOPROXY
ARG GOSUMDB
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/build-ca.pem \
    GOOS=$TARGETOS GOARCH=$TARGETARCH go build \
      -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT" \
      -o /out/cdc-outbox-idempotency ./idempotency/cmd/cdc-outbox-idempotency

FROM source AS build-orders
ARG TARGETOS
ARG TARGETARCH
ARG GOPROXY
ARG GOSUMDB
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/build-ca.pem \
    GOOS=$TARGETOS GOARCH=$TARGETARCH go build -ldflags "-s -w" \
      -o /out/ ./examples/orders ./examples/orders/consumer

# What a static binary needs besides itself: certificate authorities for TLS,
# time zones, a licence, and a user that owns nothing.
FROM scratch AS base
COPY --from=source /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=source /usr/local/go/lib/time/zoneinfo.zip /usr/share/zoneinfo.zip
ENV ZONEINFO=/usr/share/zoneinfo.zip PATH=/usr/local/bin
COPY LICENSE /LICENSE
USER 65532:65532

FROM base AS orders
COPY --from=build-orders /out/ /usr/local/bin/
ENTRYPOINT ["/usr/local/bin/orders"]

FROM base AS cdc-outbox-idempotency
COPY --from=build-idempotency /out/cdc-outbox-idempotency /usr/local/bin/
ENTRYPOINT ["/usr/local/bin/cdc-outbox-idempotency"]

# The demo starts a PostgreSQL server, hence an image that has one; the connector
# lies beside it. All addresses that the demo prints are on loopback, the host's by
# --network host:
#
#   docker run --rm --interactive --tty --network host cdc-outbox-demo
FROM postgres:17.11-bookworm AS cdc-outbox-demo
COPY --from=build /out/cdc-outbox /usr/local/bin/
COPY --from=build-demo /out/cdc-outbox-demo /usr/local/bin/
COPY LICENSE /LICENSE
# The image's user postgres: PostgreSQL runs as a user that has a name.
USER 999:999
ENTRYPOINT ["/usr/local/bin/cdc-outbox-demo"]

FROM base AS cdc-outbox
ARG VERSION=dev
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="cdc-outbox" \
      org.opencontainers.image.description="Publishes a PostgreSQL outbox table to Kafka" \
      org.opencontainers.image.source="https://github.com/cdc-outbox/cdc-outbox" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT"
COPY --from=build /out/cdc-outbox /usr/local/bin/
EXPOSE 8080
# The verb reads the configuration as run does: name the file in
# CDC_OUTBOX_CONFIG rather than with -c, so that both find it.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 \
    CMD ["/usr/local/bin/cdc-outbox", "healthcheck"]
# SIGTERM, docker stop's signal, drains for at most errors.drain_timeout (20s):
# give it longer, e.g. docker stop --timeout 30.
ENTRYPOINT ["/usr/local/bin/cdc-outbox"]
CMD ["run"]
