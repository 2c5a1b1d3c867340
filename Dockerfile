# The server's image, built from this tree without another tool: one static program, its configuration, the public certificate authorities.
#
#   docker build -t sealion:0.1.0 .
#   podman build --format docker -t sealion:0.1.0 .                                  # OCI's own format has no HEALTHCHECK
#   podman build --platform linux/amd64,linux/arm64 --manifest sealion:0.1.0 .
#   podman build --target bill --output . .                                          # the bill of materials, CycloneDX
#
# Each architecture is built on a machine of its kind, or under QEMU's emulation.
ARG RUST=docker.io/library/rust:1.95-slim-bookworm

FROM ${RUST} AS source
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates gcc libc6-dev make musl-tools \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .

FROM source AS build
ARG TARGETARCH
RUN case "${TARGETARCH:-$(dpkg --print-architecture)}" in \
        amd64) target=x86_64-unknown-linux-musl ;; \
        arm64) target=aarch64-unknown-linux-musl ;; \
        *) echo "no image for ${TARGETARCH}: amd64 and arm64 are known" >&2; exit 1 ;; \
    esac \
    && rustup target add "$target" \
    && cargo build --locked --release --package sealion --target "$target" \
    && install -D --strip "target/$target/release/sealion" /out/sealion

FROM source AS cyclonedx
RUN cargo install --locked cargo-cyclonedx \
    && cargo cyclonedx --format json --spec-version 1.5 --override-filename sealion.cdx --manifest-path crates/server/Cargo.toml

FROM scratch AS bill
COPY --from=cyclonedx /src/crates/server/sealion.cdx.json /

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=
LABEL org.opencontainers.image.title="sealion" \
      org.opencontainers.image.description="HTTPS server with kernel TLS: files, proxy, cache" \
      org.opencontainers.image.licenses="Apache-2.0 OR MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /out/sealion /sealion
COPY --from=source /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --chown=0:0 packaging/container/rootfs/ /
COPY --chown=65532:65532 packaging/container/state/ /var/lib/sealion/
ENV XDG_STATE_HOME=/var/lib XDG_DATA_HOME=/var/lib
USER 65532:65532
EXPOSE 8443/tcp
VOLUME /var/lib/sealion
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["/sealion", "health", "127.0.0.1:9443"]
ENTRYPOINT ["/sealion"]
CMD ["serve", "--config", "/etc/sealion/sealion.toml"]
