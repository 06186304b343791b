# Sourced by scripts/setup and scripts/env.sh: let uv trust what the system trusts.
# A company's proxy may sign with a certificate that only the system knows; a bare system may have no certificates at all.
if [ -z "${UV_SYSTEM_CERTS:-}" ] && [ -s /etc/ssl/certs/ca-certificates.crt ]; then export UV_SYSTEM_CERTS=true; fi
